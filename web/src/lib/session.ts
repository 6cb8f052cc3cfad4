/** Who one is at this server: asked, logged in by a link or a token, logged out. */
import { signal } from '@preact/signals';
import { ApiError, ask, askJson, loggedIn, tokenWanted } from './api';

/** Somebody and what they may do. */
export interface Caller {
  /** The token's name or id, or `server` for who started it. */
  name: string;
  how: 'open' | 'server' | 'token' | 'certificate';
  session: boolean;
  scopes: string[];
  organization: string | null;
  workspace: string | null;
  project: string | null;
}

interface SessionAnswer {
  guarded: boolean;
  caller: Caller | null;
}

/** Who asks; `null` where nobody is asked, or nobody is logged in. */
export const who = signal<Caller | null>(null);

function take(answer: SessionAnswer): void {
  who.value = answer.guarded ? answer.caller : null;
}

/** Asks who one is; a server that does not say is asked again by the next page. */
export async function askWho(): Promise<void> {
  try {
    take(await askJson<SessionAnswer>('session'));
  } catch {
    // The bar shows nobody; what the page asks tells what is wrong.
  }
}

async function enter(body: { code: string } | { token: string }): Promise<void> {
  take(await askJson<SessionAnswer>('login', { method: 'POST', body: JSON.stringify(body) }));
  loggedIn();
}

/** Logs in with a token; throws [`ApiError`] when it is not taken. */
export const enterToken = (token: string): Promise<void> => enter({ token });

/** Logs in with what stands behind the `#` of a link. */
export const enterCode = (code: string): Promise<void> => enter({ code });

/** Logs out and asks for a token again. */
export async function logOut(): Promise<void> {
  await ask('session', { method: 'DELETE' });
  who.value = null;
  tokenWanted.value = true;
}

/** What somebody may do and where, in words. */
export function rights(caller: Caller): string {
  const names = [caller.organization, caller.workspace, caller.project].filter((name) => name);
  return `${caller.scopes.join(', ')}${names.length > 0 ? ` in ${names.join(' / ')}` : ''}`;
}

/** What somebody lacks to change what concerns all, such as a silence; empty where nothing is lacking. */
export function refusedText(caller: Caller | null): string {
  if (caller === null) return '';
  if (!caller.scopes.includes('admin')) return 'needs scope admin';
  return caller.organization || caller.workspace || caller.project ? 'needs a token for all projects' : '';
}

/** Why a login failed, in one line. */
export function refusalLine(error: unknown): string {
  if (!(error instanceof ApiError)) return String(error);
  return error.hint ? `${error.message}: ${error.hint}` : error.message;
}
