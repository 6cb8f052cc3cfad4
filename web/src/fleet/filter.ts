/** Which cards a filter keeps: the grammar of the list of runs, over what is known of a card. */
import type { Completion } from '../components/filter_bar';
import { parseFilter, parseToken, quoteValue, type Token } from '../lib/filter';
import type { Gpu } from './answers';
import { ownerName } from './names';

type Read = (gpu: Gpu) => string[];

const present = (...values: (string | null | undefined)[]) =>
  values.filter((v) => v != null && v !== '') as string[];

/** Keys and what they read of a card. */
const KEYS: Record<string, Read> = {
  host: (g) => [g.host],
  gpu: (g) => [g.gpu],
  uuid: (g) => present(g.uuid),
  model: (g) => present(g.gpu_model),
  driver: (g) => present(g.driver),
  pci: (g) => present(g.pci_bus_id),
  state: (g) => [g.state],
  run: (g) => present(g.owner?.run, g.owner?.run_id),
  job: (g) => present(g.owner?.job_id),
  namespace: (g) => present(g.owner?.namespace),
  pod: (g) => present(g.owner?.pod),
  owner: (g) => present(ownerName(g.owner)),
  shared: (g) => (g.owner?.shared ? [String(g.owner.shared)] : []),
  xid: (g) => g.xids.map((x) => String(x.xid)),
  incident: (g) => present(g.incident),
  value: (g) => (g.value === null ? [] : [String(g.value)]),
  source: (g) => g.sources,
};

const COMPARE: Record<string, (a: number, b: number) => boolean> = {
  '>': (a, b) => a > b,
  '<': (a, b) => a < b,
  '>=': (a, b) => a >= b,
  '<=': (a, b) => a <= b,
};

/** Exact, or with `*` anywhere for any text. */
function matches(value: string, wanted: string): boolean {
  if (!wanted.includes('*')) return value === wanted;
  const pieces = wanted.split('*').map((p) => p.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${pieces.join('.*')}$`).test(value);
}

function holds(token: Token, gpu: Gpu): boolean {
  if (token.key === '') {
    const wanted = token.values[0].toLowerCase();
    return [gpu.host, ownerName(gpu.owner)].some((v) => v.toLowerCase().includes(wanted));
  }
  const values = KEYS[token.key](gpu);
  if (token.operator === 'has') return values.length > 0;
  if (token.operator === 'absent') return values.length === 0;
  const compare = COMPARE[token.operator];
  return token.values.some((wanted) =>
    values.some((v) => (compare ? compare(Number(v), Number(wanted)) : matches(v, wanted))),
  );
}

/** What a filter keeps. A key that is not known keeps all. */
export function keeper(text: string): (gpu: Gpu) => boolean {
  const tokens = parseFilter(text).filter((t) => t.key === '' || Object.hasOwn(KEYS, t.key));
  return (gpu) => tokens.every((token) => holds(token, gpu) !== token.negated);
}

function distance(a: string, b: string): number {
  let before = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++)
      row[j] = Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + Number(a[i - 1] !== b[j - 1]));
    before = row;
  }
  return before[b.length];
}

/** Keys that are not known, with the nearest that is. */
export function unknownKeys(text: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const { key } of parseFilter(text)) {
    if (key === '' || Object.hasOwn(KEYS, key)) continue;
    const near = Object.keys(KEYS).toSorted((a, b) => distance(key, a) - distance(key, b))[0];
    found.set(key, distance(key, near) <= 3 ? near : '');
  }
  return found;
}

/** Keys, then values with how many cards have them. */
export function completions(typed: string, gpus: Gpu[]): Completion[] {
  const { key, negated } = parseToken(typed);
  const sign = negated ? '-' : '';
  const body = typed.slice(sign.length);
  const colon = body.indexOf(':');
  if (colon < 0 || !Object.hasOwn(KEYS, key)) {
    const keys = Object.keys(KEYS).filter((k) => k.startsWith(body));
    return keys.map((k) => ({ text: `${sign}${k}:`, count: null }));
  }
  const begun = body.slice(colon + 1).replaceAll('"', '');
  const counts = new Map<string, number>();
  for (const gpu of gpus) for (const value of KEYS[key](gpu)) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts]
    .filter(([value]) => value.startsWith(begun))
    .sort(([, a], [, b]) => b - a)
    .map(([value, count]) => ({ text: `${sign}${key}:${quoteValue(value)}`, count }));
}
