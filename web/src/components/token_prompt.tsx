/** Asks for a token after a 401. */
import { path } from '../lib/address';
import { tokenWanted } from '../lib/api';
import { parseRoute } from '../lib/route';
import { Dialog } from './dialog';
import { TokenForm } from './token_form';

/** Shows itself while a token is wanted, but where the page has the field itself. */
export function TokenPrompt() {
  if (!tokenWanted.value || parseRoute(path.value).page === 'login') return null;
  return (
    <Dialog title="This server asks who you are" close={() => (tokenWanted.value = false)}>
      <TokenForm />
    </Dialog>
  );
}
