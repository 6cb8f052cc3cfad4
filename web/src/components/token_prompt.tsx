/** Asks for a token after a 401. */
import { tokenWanted } from '../lib/api';
import { Dialog } from './dialog';
import { TokenForm } from './token_form';

/** Shows itself while a token is wanted. */
export function TokenPrompt() {
  if (!tokenWanted.value) return null;
  return (
    <Dialog title="This server asks who you are" close={() => (tokenWanted.value = false)}>
      <TokenForm />
    </Dialog>
  );
}
