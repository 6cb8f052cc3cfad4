/** Who is logged in, and the way out. */
import { useEffect } from 'preact/hooks';
import { tokenWanted } from '../lib/api';
import { askWho, logOut, rights, who } from '../lib/session';
import { tellError } from '../lib/toast';
import { Menu } from './menu';

/** A name in the bar; nothing where this server asks nobody. */
export function Who() {
  useEffect(() => void askWho(), []);
  const caller = who.value;
  if (caller === null || tokenWanted.value) return null;
  const leave = () => {
    logOut().catch((error: unknown) => tellError('cannot log out', error));
  };
  return (
    <Menu
      label={`Logged in as ${caller.name}: ${rights(caller)}`}
      class="who"
      items={() => [{ text: 'Log out', run: leave }]}
    >
      {caller.name}
    </Menu>
  );
}
