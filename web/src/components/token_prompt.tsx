/** Asks for the server's token after a 401. */
import { enterToken, tokenWanted } from '../lib/api';
import { Dialog } from './dialog';

/** Shows itself while a token is wanted. */
export function TokenPrompt() {
  if (!tokenWanted.value) return null;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const field = (event.currentTarget as HTMLFormElement).elements.namedItem('token') as HTMLInputElement;
    enterToken(field.value.trim());
  };
  return (
    <Dialog title="This server asks for a token" close={() => (tokenWanted.value = false)}>
      <form onSubmit={submit} class="token-form">
        <p>
          It is the one that the server was started with: <code>TRUEGAUGE_TOKEN</code>,{' '}
          <code>--token-file</code> or its config. It stays in this browser.
        </p>
        <label>
          Token
          <input name="token" type="password" autocomplete="off" required />
        </label>
        <button type="submit" class="primary">
          Use this token
        </button>
      </form>
    </Dialog>
  );
}
