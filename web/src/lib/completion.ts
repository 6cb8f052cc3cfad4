/** What a half-typed filter token may become. */
import type { Completion } from '../components/filter_bar';
import type { RunRow, State } from './answers';
import { KEYS, quoteValue } from './filter';

function counted(values: string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

function valuesOf(key: string, rows: RunRow[], states: Partial<Record<State, number>>): Map<string, number> {
  switch (key) {
    case 'state':
      return new Map(Object.entries(states).filter(([, count]) => count > 0));
    case 'tag':
      return counted(rows.flatMap((r) => r.tags));
    case 'host':
      return counted(rows.flatMap((r) => r.hosts));
    case 'project':
    case 'workspace':
    case 'organization':
    case 'run':
      return counted(rows.map((r) => r[key]).filter(Boolean));
    default:
      return new Map();
  }
}

/** Keys, then values with counts among the runs that are loaded. */
export function completions(
  typed: string,
  rows: RunRow[],
  states: Partial<Record<State, number>>,
): Completion[] {
  const sign = typed.startsWith('-') ? '-' : '';
  const body = typed.slice(sign.length);
  const colon = body.indexOf(':');
  if (colon < 0) {
    const metrics = new Set(rows.flatMap((r) => (r.metric ? [r.metric.name] : [])));
    const names = [...KEYS, ...metrics].filter((k) => k.startsWith(body.toLowerCase()));
    return names.map((name) => ({ text: `${sign}${quoteValue(name)}:`, count: null }));
  }
  const key = body.slice(0, colon);
  const pieces = body.slice(colon + 1).split(',');
  const last = pieces.pop() ?? '';
  const before = `${sign}${key}:${pieces.map((p) => `${p},`).join('')}`;
  return [...valuesOf(key, rows, states)]
    .filter(([value]) => value.toLowerCase().includes(last.toLowerCase().replaceAll('"', '')))
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([value, count]) => ({ text: before + quoteValue(value), count }));
}
