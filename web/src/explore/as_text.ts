/** A question in other words: for a notebook. */
import type { Range } from '../charts/range';

/** Python that asks the same of this server, each query as a pandas table. */
export function pythonOf(origin: string, queries: string[], range: Range, step: number): string {
  const literal = (text: string) => JSON.stringify(text);
  const asked = `start=${range.from / 1000}, end=${range.to / 1000}, step=${step / 1000}, url=SERVER`;
  const line = (query: string, at: number) =>
    `${String.fromCharCode(97 + at)} = tg.query(${literal(query)}, ${asked}).to_pandas()`;
  return `import truegauge as tg\n\nSERVER = ${literal(origin)}\n${queries.map(line).join('\n')}\n`;
}
