/** Where a link logs in: the code stands behind the `#`, which no server sees, and works once. */
import { useEffect, useState } from 'preact/hooks';
import { TokenForm } from '../components/token_form';
import { open } from '../lib/address';
import { tokenEntered } from '../lib/api';
import { enterCode, refusalLine } from '../lib/session';

/** Uses the link's code up and goes to the runs, or says what went wrong. */
export function LoginPage() {
  const [wrong, setWrong] = useState('');
  const [before] = useState(tokenEntered.value);
  useEffect(() => {
    const code = window.location.hash.slice(1);
    // It is used up in a moment: no history keeps it.
    window.history.replaceState(null, '', '/login');
    if (code) enterCode(code).catch((error: unknown) => setWrong(refusalLine(error)));
  }, []);
  useEffect(() => {
    if (tokenEntered.value !== before) open('/runs', true);
  }, [tokenEntered.value]);
  return (
    <main class="empty">
      <h1>Log in</h1>
      {wrong && <p role="alert">{wrong}</p>}
      <TokenForm />
    </main>
  );
}
