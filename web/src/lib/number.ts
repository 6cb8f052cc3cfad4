/** Numbers as people read them: four significant digits, thin space before the unit. */

/** Between a number and its unit. */
export const THIN = '\u2009';
const MINUS = '\u2212';
const SI = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];

function commas(digits: string): string {
  const [whole, part] = digits.split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ',');
  return part === undefined ? grouped : `${grouped}.${part}`;
}

function exponent(value: number, digits: number): string {
  return value
    .toExponential(digits)
    .replace(/\.?0+e/, 'e')
    .replace('e+', 'e')
    .replace('e-', `e${MINUS}`);
}

/** A whole number with thousands commas. */
export function formatCount(value: number): string {
  const text = commas(Math.abs(Math.round(value)).toString());
  return value < 0 ? MINUS + text : text;
}

/** The digits of a positive value and its prefix. */
function magnitude(value: number): [digits: string, prefix: string] {
  if (value === 0) return ['0', ''];
  if (value >= 1e21 || value < 1e-4) return [exponent(value, 3), ''];
  if (value >= 99_999.5) {
    const power = Math.min(SI.length - 1, Math.floor(Math.log10(value * 1.00005) / 3));
    return [significant(value / 1000 ** power), SI[power]];
  }
  if (Number.isInteger(value)) return [commas(value.toString()), ''];
  return [significant(value), ''];
}

/** Four significant digits, never an exponent. */
function significant(value: number): string {
  const rounded = Number(value.toPrecision(4));
  return commas(rounded.toFixed(Math.min(20, Math.max(0, 3 - Math.floor(Math.log10(rounded))))));
}

/** A value with its unit, such as `31.10 %`, `468.0 k` or `1.500 GiB`; words for what is not finite. */
export function formatValue(value: number | null | undefined, unit = ''): string {
  if (value === null || value === undefined) return '—';
  if (Number.isNaN(value)) return 'NaN';
  const sign = value < 0 ? MINUS : '';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : `${MINUS}Inf`;
  const size = Math.abs(value);
  // Thousands of milliseconds are seconds; `kms` is no unit.
  if (unit === 'ms' && size >= 99_999.5) return formatValue(value / 1000, 's');
  if (isBytes(unit) && size >= 1024 && size < 1e21) {
    const power = Math.min(BINARY.length - 1, Math.floor(Math.log2(size) / 10));
    return `${sign}${significant(size / 1024 ** power)}${THIN}${BINARY[power]}${unit}`;
  }
  const [digits, prefix] = magnitude(size);
  // A prefix is part of a symbol, and stands before a word.
  const behind = prefix + (prefix && /^[a-z]{3}/.test(unit) ? THIN : '') + unit;
  return sign + digits + (behind ? THIN + behind : '');
}

/** The same without zeros at the end of its fraction, for sentences and labels. */
export const formatBrief = (value: number | null | undefined, unit = ''): string =>
  formatValue(value, unit)
    .replace(/(\.\d*?)0+(?=\D|$)/, '$1')
    .replace(/\.(?=\D|$)/, '');

/** Whether values of this unit are written in powers of 1,024. */
export function isBytes(unit: string): boolean {
  return unit === 'B' || unit === 'B/s';
}

/** Labels of an axis, all with the same number of decimals and the same prefix. */
export function formatTicks(values: number[], unit = ''): string[] {
  const finite = values.filter(Number.isFinite);
  const largest = Math.max(0, ...finite.map(Math.abs));
  const step = finite.length > 1 ? Math.abs(finite[1] - finite[0]) : largest;
  if (largest === 0) return values.map(() => '0');
  if (largest >= 1e21 || largest < 1e-5)
    return values.map((v) => (v < 0 ? MINUS : '') + (v === 0 ? '0' : exponent(Math.abs(v), 2)));
  const base = isBytes(unit) ? 1024 : 1000;
  const from = isBytes(unit) ? 1024 : 1e4;
  const power = largest >= from ? Math.min(6, Math.floor(Math.log(largest * 1.0000001) / Math.log(base))) : 0;
  const prefix = (isBytes(unit) ? BINARY : SI)[power] + (isBytes(unit) ? unit : '');
  const scale = base ** power;
  const decimals = Math.min(20, Math.max(0, -Math.floor(Math.log10((step / scale) * 1.0000001))));
  const digits = decimalsNeeded(
    finite.map((v) => v / scale),
    decimals,
  );
  return values.map((v) => {
    const text = commas(Math.abs(v / scale).toFixed(digits));
    const sign = v < 0 && Number(text.replace(/,/g, '')) !== 0 ? MINUS : '';
    return sign + text + (prefix && v !== 0 ? THIN + prefix : '');
  });
}

function decimalsNeeded(values: number[], most: number): number {
  for (let digits = Math.max(0, most - 1); digits < most + 2; digits++) {
    if (values.every((v) => Math.abs(Number(v.toFixed(digits)) - v) <= Math.abs(v) * 1e-9 + 1e-12))
      return digits;
  }
  return most;
}
