/** The field that takes a token and logs in with it. */
import { useState } from 'preact/hooks';
import { enterToken, refusalLine } from '../lib/session';

/** Shows the field, and why a token was not taken. */
export function TokenForm() {
  const [wrong, setWrong] = useState('');
  const [busy, setBusy] = useState(false);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const field = (event.currentTarget as HTMLFormElement).elements.namedItem('token') as HTMLInputElement;
    setBusy(true);
    enterToken(field.value.trim())
      .catch((error: unknown) => {
        setWrong(refusalLine(error));
        field.select();
      })
      .finally(() => setBusy(false));
  };
  return (
    <form onSubmit={submit} class="token-form">
      <p>
        Use a token of yours, or open a link from <code>truegauge token login</code>. An admin makes tokens
        with <code>truegauge token create</code>; the one that the server was started with works too.
      </p>
      <label>
        Token
        <input name="token" type="password" autocomplete="off" required aria-invalid={wrong !== ''} />
      </label>
      {wrong && <p role="alert">{wrong}</p>}
      <button type="submit" class="primary" disabled={busy}>
        Log in
      </button>
    </form>
  );
}
