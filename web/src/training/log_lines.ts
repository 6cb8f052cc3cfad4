/** Lines that the processes of a run logged through OpenTelemetry. */
import { askJson } from '../lib/api';

/** One line. */
export interface LogLine {
  /** ms since the epoch. */
  time: number;
  /** The same to the nanosecond, as text. */
  time_ns: string;
  severity: number;
  severity_text: string;
  body: string;
  event: string;
  scope: string;
  rank: number | null;
  instance: string;
  host: string;
  trace: string | null;
  span: string | null;
}

/** An answer: lines, oldest first, and where to go on. */
export interface LogAnswer {
  records: LogLine[];
  next: string | null;
  texts_hidden: boolean;
}

/** What a line must be at least to be shown, the usual one first. */
export const LEVELS = ['warn', 'error', 'info', 'debug'] as const;
/** One of them. */
export type Level = (typeof LEVELS)[number];

/** Lines of one answer. */
const LIMIT = 200;

/** Asks for lines of a run. */
export function askLines(
  asked: { runId: string; level: Level; rank: number | null; from: number | null; to: number | null },
  cursor: string | null,
  signal: AbortSignal,
): Promise<LogAnswer> {
  const query = new URLSearchParams({ run_id: asked.runId, severity: asked.level, limit: String(LIMIT) });
  for (const key of ['rank', 'from', 'to'] as const) {
    const value = asked[key];
    if (value !== null) query.set(key, String(Math.round(value)));
  }
  if (cursor !== null) query.set('cursor', cursor);
  return askJson<LogAnswer>(`logs?${query}`, { signal });
}

const NAMES: [least: number, name: string][] = [
  [21, 'fatal'],
  [17, 'error'],
  [13, 'warn'],
  [9, 'info'],
  [5, 'debug'],
  [1, 'trace'],
];

/** What a severity is called. */
export function severityName(severity: number): string {
  return NAMES.find(([least]) => severity >= least)?.[1] ?? '—';
}
