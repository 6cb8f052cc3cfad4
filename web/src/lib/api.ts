/** Questions to this server: errors in words, and how many are under way. The browser sends the cookie. */
import { signal } from '@preact/signals';

const BASE = '/api/tg/v1/';

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
    /** The input that is wrong; empty where it is none. */
    readonly field = '',
  ) {
    super(message);
  }
}

/** Whether the server asks who one is. */
export const tokenWanted = signal(false);
/** Questions under way. */
export const inFlight = signal(0);
/** Goes up whenever somebody logged in, so that pages ask again. */
export const tokenEntered = signal(0);

/** Lets pages ask again: a login has succeeded. */
export function loggedIn(): void {
  tokenWanted.value = false;
  tokenEntered.value++;
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
        text('field'),
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
    const headers: Record<string, string> = init.body ? { 'content-type': 'application/json' } : {};
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
