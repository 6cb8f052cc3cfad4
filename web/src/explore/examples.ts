/** Queries to start with: only such as have data here. */
import type { Described } from './catalogue';

/** A query and what it shows. */
export interface Example {
  query: string;
  says: string;
}

const EXAMPLES = 6;

/** Up to six queries over the metrics that exist. */
export function examplesOf(metrics: Described[]): Example[] {
  const examples: Example[] = [];
  const taken = new Set<string>();
  const add = (metric: Described | undefined, query: (name: string) => string, says: string) => {
    if (!metric || taken.has(metric.name)) return;
    taken.add(metric.name);
    examples.push({ query: query(metric.name), says });
  };
  const plain = metrics.filter((m) => /^[a-zA-Z_:][\w:]*$/.test(m.name));
  const find = (test: RegExp) => plain.find((m) => test.test(m.name));
  const counter = plain.find((m) => m.type === 'counter' || /_total$/.test(m.name));
  const widest = plain.toSorted((a, b) => b.series - a.series);
  add(find(/(^|_)loss$/), (n) => n, 'Training loss of every run');
  add(counter, (n) => `rate(${n}[5m])`, 'A counter as a rate per second');
  add(find(/cpu_utilization$/), (n) => `avg by (host) (${n})`, 'CPU of every host');
  add(
    find(/memory.*(bytes|utilization)$/),
    (n) => `max by (run, host) (${n})`,
    'Memory, the fullest process of a host',
  );
  for (const metric of widest) {
    if (examples.length >= EXAMPLES - 1) break;
    const many = metric.series > 5;
    add(
      metric,
      (n) => (many ? `topk(5, ${n})` : n),
      many ? 'The five highest of many series' : 'As it is stored',
    );
  }
  if (plain.length > 0)
    examples.push({
      query: 'sort_desc(count by (__name__) ({__name__!=""}))',
      says: 'How many series each metric has',
    });
  return examples.slice(0, EXAMPLES);
}
