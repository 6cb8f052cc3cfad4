/** Questions to this server: the token, errors in words, and how many are under way. */
import { signal } from '@preact/signals';

const BASE = '/api/tg/v1/';
const TOKEN = 'truegauge.token';

/** A refusal or failure, as a card shows it. */
export class ApiError extends Error {
  constructor(
    /** HTTP status; 0 when no answer came. */
    readonly status: number,
    message: string,
    /** What to do about it; may be empty. */
    readonly hint = '',
    /** For the server's log; may be empty. */
    readonly requestId = '',
  ) {
    super(message);
  }
}

/** Whether the server wants a token that it has not got. */
export const tokenWanted = signal(false);
/** Questions under way. */
export const inFlight = signal(0);
/** Goes up whenever a token was entered, so that pages ask again. */
export const tokenEntered = signal(0);

function token(): string {
  try {
    return window.localStorage.getItem(TOKEN) ?? '';
  } catch {
    return '';
  }
}

/** Keeps the token for this browser and lets pages ask again. */
export function enterToken(value: string): void {
  try {
    if (value) window.localStorage.setItem(TOKEN, value);
    else window.localStorage.removeItem(TOKEN);
  } catch {
    // Storage is off: the prompt comes back at the next question.
  }
  tokenWanted.value = false;
  tokenEntered.value++;
}

/** Headers that every question carries. */
export function authorization(): Record<string, string> {
  const value = token();
  return value ? { authorization: `Bearer ${value}` } : {};
}

/** An answer that is not 2xx, in words. */
export async function refusal(answer: Response): Promise<ApiError> {
  if (answer.status === 401) tokenWanted.value = true;
  const requestId = answer.headers.get('x-request-id') ?? '';
  try {
    const body: unknown = await answer.json();
    if (typeof body === 'object' && body !== null && 'error' in body) {
      // The Prometheus API gives the message alone.
      const error = (typeof body.error === 'string' ? { message: body.error } : body.error) as Record<
        string,
        unknown
      >;
      const text = (field: string) => (typeof error[field] === 'string' ? (error[field] as string) : '');
      return new ApiError(
        answer.status,
        text('message') || answer.statusText,
        text('hint'),
        text('request_id') || requestId,
      );
    }
  } catch {
    // Not JSON: the status has to do.
  }
  return new ApiError(answer.status, answer.statusText || 'no reason given', '', requestId);
}

/** Asks a path below the API, or an absolute one, and throws [`ApiError`] unless the answer is 2xx; an abort throws as `fetch` does. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  inFlight.value++;
  try {
    const headers = { ...authorization(), ...(init.body ? { 'content-type': 'application/json' } : {}) };
    const answer = await fetch(path.startsWith('/') ? path : BASE + path, {
      ...init,
      headers: { ...headers, ...(init.headers as object) },
    }).catch((error: unknown) => {
      if (error instanceof DOMException && error.name === 'AbortError') throw error;
      throw new ApiError(0, 'the server does not answer', 'it may have stopped: asking again');
    });
    if (!answer.ok) throw await refusal(answer);
    return answer;
  } finally {
    inFlight.value--;
  }
}

/** Asks for JSON. */
export async function askJson<T>(path: string, init: RequestInit = {}): Promise<T> {
  return (await (await ask(path, init)).json()) as T;
}

/** Whether this is a question that was called off. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** An error as one line, such as `cannot read: 503 store is full`. */
export function errorLine(error: unknown): string {
  if (error instanceof ApiError) return error.status ? `${error.status} ${error.message}` : error.message;
  return error instanceof Error ? error.message : String(error);
}
