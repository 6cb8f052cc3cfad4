/** Names of inputs and figures as people read them, and files and command lines as inputs. */
import { formatValue } from '../lib/number';
import { quantity } from '../money/quantity';
import type { Columns, FileColumn, Input, Tool, Value } from './answers';

const SHORT: Record<string, string> = {
  gpu: 'GPU',
  gpus: 'GPUs',
  kv: 'KV',
  mfu: 'MFU',
  hfu: 'HFU',
  mbu: 'MBU',
  ttft: 'TTFT',
  tpot: 'TPOT',
  itl: 'ITL',
  ettr: 'ETTR',
  mtbi: 'MTBI',
  pue: 'PUE',
  usd: '$',
  mtok: 'Mtok',
  kwh: 'kWh',
  dram: 'DRAM',
  flops: 'FLOPs',
  e2e: 'end to end',
};

/** `kv_bytes_per_token` as `KV bytes per token`. */
export function titleOf(name: string): string {
  const words = name.split('_').map((word) => SHORT[word] ?? word);
  const text = words.join(' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The same of a figure, whose unit stands behind its value. */
export const figureTitle = (name: string) => titleOf(name.replace(/_(seconds|ratio|watts)(?=_|$)/g, ''));

/** The unit that a name ends in. */
export function unitOf(name: string): string {
  if (/usd/.test(name)) return /_per_usd$/.test(name) ? '' : name;
  if (/(_ratio|_share|occupancy)$/.test(name)) return 'ratio';
  if (/_seconds($|_p\d|_max|_mean)/.test(name)) return 'seconds';
  if (/tokens_per_second/.test(name)) return 'tok/s';
  if (/tokens_per_joule/.test(name)) return 'tok/J';
  if (/joules_per_token/.test(name)) return 'J/token';
  if (/kwh_per_mtok/.test(name)) return 'kWh/Mtok';
  if (/flops_per_second|peak_flops|achievable_flops/.test(name)) return 'FLOP/s';
  if (/flops_per_token/.test(name)) return 'FLOP';
  if (/bytes_per_second/.test(name)) return 'B/s';
  if (/bytes/.test(name)) return 'B';
  if (/watts/.test(name)) return 'W';
  if (/joules/.test(name)) return 'J';
  return '';
}

/** A value of an answer; `null` where there is none to write. */
export function valueText(value: Value | undefined, unit: string): string | null {
  if (value === null || value === undefined) return null;
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map((one) => valueText(one, unit) ?? '—').join(', ');
  if (typeof value === 'object') return null;
  if (unit === 'sequences') return quantity(value, '');
  if (unit === '1/s') return quantity(value, '/s');
  if (/^s(econds)?$/.test(unit) && Math.abs(value) < 1 && value !== 0)
    return formatValue(Number((value * 1000).toPrecision(4)), 'ms');
  return quantity(value, unit);
}

/** Numbers of a list as the address has it: `1,8,32`. */
export const listOf = (text: string) =>
  text
    .split(/[\s,;]+/)
    .map((one) => one.trim())
    .filter(Boolean);

/** The words of a command line, with its quotes undone. */
export function wordsOf(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((m) => m[1] ?? m[2] ?? m[3]);
}

/** What an example line gives, by the names of the inputs; what a file would give is left out. */
export function exampleOf(tool: Tool, line: string): Record<string, string> {
  const words = wordsOf(line);
  const given: Record<string, string> = {};
  words.forEach((word, at) => {
    if (!word.startsWith('--')) return;
    const [flag, inline] = word.slice(2).split('=');
    const input = tool.inputs.find((i) => i.name === flag.replace(/-/g, '_'));
    if (!input || input.kind === 'table' || input.kind === 'series') return;
    given[input.name] = input.kind === 'switch' ? '1' : (inline ?? words[at + 1] ?? '');
  });
  return given;
}

/** The example that needs no file; the first one where all do. */
export function exampleLine({ examples }: Tool): string {
  return examples.find((line) => !/\.(csv|txt|json)\b|-query\b/.test(line)) ?? examples[0] ?? '';
}

/** Inputs that some example gives, and files that the command line names: the others are seldom needed. */
export function usualInputs(tool: Tool): Set<string> {
  const files = tool.inputs.filter((i) => i.is_file).map((i) => i.name);
  return new Set([...files, ...tool.examples.flatMap((line) => Object.keys(exampleOf(tool, line)))]);
}

/** 300 tokens of which one came two seconds late. */
const times = Array.from({ length: 300 }, (_, at) => (0.42 + 0.025 * at + (at >= 150 ? 2 : 0)).toFixed(3));

/** Files that stand in where an example needs one. */
export const SAMPLE_FILES: Record<string, Record<string, string>> = { stream: { times: times.join('\n') } };

/** Lines of a file that are read here at most; the command line takes longer ones. */
export const LINES_MAX = 20_000;

/** Reads pasted text: comma-separated, with a first line of names or the columns in their order. Throws a sentence. */
export function columnsOf(text: string, columns: FileColumn[]): Columns {
  const lines = text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter(Boolean);
  if (lines.length > LINES_MAX) throw new Error(`more than ${LINES_MAX} lines: use the command line for it`);
  const first = lines[0]?.split(/[,\t]/).map((cell) => cell.trim().replace(/^"|"$/g, '')) ?? [];
  const named = first.some((cell) => /^[a-z]/i.test(cell) && !/^\+?inf$/i.test(cell));
  const order = named ? first.map((cell) => cell.toLowerCase()) : columns.map((c) => c.name);
  const found: Columns = {};
  for (const { name, is_needed } of columns) {
    const at = order.indexOf(name.toLowerCase());
    if (at < 0 && is_needed) throw new Error(`there is no column ${name}`);
    if (at < 0) continue;
    found[name] = lines.slice(named ? 1 : 0).map((line, row) => cellOf(line, at, row + (named ? 2 : 1)));
  }
  return found;
}

function cellOf(line: string, at: number, row: number): number | string | null {
  const text = line.split(/[,\t]/)[at]?.trim() ?? '';
  if (text === '') return null;
  if (/^\+?Inf$/.test(text)) return text;
  const number = Number(text);
  if (!Number.isFinite(number)) throw new Error(`line ${row} has ${text.slice(0, 40)}, which is no number`);
  return number;
}

/** Figures in the order of their formulas; those without one behind them. */
export function figureOrder(names: string[], formula: { name: string }[]): string[] {
  const place = (name: string) => {
    const at = formula.findIndex((f) => f.name === name);
    return at < 0 ? formula.length : at;
  };
  return names.toSorted((a, b) => place(a) - place(b));
}

/** Inputs in the order of the form: what has no flag comes first. */
export const formOrder = (inputs: Input[]) =>
  inputs.filter((i) => i.kind !== 'series').toSorted((a, b) => Number(b.is_file) - Number(a.is_file));
