import { describe, expect, test } from 'vitest';
import { formatCount, formatTicks, formatValue } from '../../src/lib/number';
import { cutMiddle, labelText, shown, visible } from '../../src/lib/text';
import { formatRelativeTicks, formatSpan, formatTimeTicks, formatWhen } from '../../src/lib/time';

const plain = (text: string) => text.replaceAll('\u2009', ' ').replaceAll('\u2212', '-');

describe('numbers', () => {
  test('four significant digits, a unit behind a thin space', () => {
    const check = (value: number | null, unit: string, want: string) =>
      expect(plain(formatValue(value, unit))).toBe(want);
    check(2.86129, '', '2.861');
    check(0.0731, '', '0.07310');
    check(31.1, '%', '31.10 %');
    check(468_123, '', '468.1 k');
    check(468_123, 'tokens/s', '468.1 k tokens/s');
    check(468_123, 'W', '468.1 kW');
    check(40_240, 'ms', '40,240 ms');
    check(105_240, 'ms', '105.2 s');
    check(99_999.9, '', '100.0 k');
    check(6263, '', '6,263');
    check(1536, 'B', '1.500 KiB');
    check(512, 'B', '512 B');
    check(-0.5, 's', '-0.5000 s');
    check(0, '', '0');
    check(1e308, '', '1e308');
    check(5e-324, '', '4.941e-324');
    check(Number.NaN, '%', 'NaN');
    check(Infinity, '', '+Inf');
    check(-Infinity, '', '-Inf');
    check(null, '', '—');
    expect(plain(formatCount(-1_234_567))).toBe('-1,234,567');
  });

  test('ticks share their decimals and prefix', () => {
    expect(formatTicks([0, 0.25, 0.5])).toEqual(['0.00', '0.25', '0.50']);
    expect(formatTicks([0, 2.5, 5]).map(plain)).toEqual(['0.0', '2.5', '5.0']);
    expect(formatTicks([0, 200_000, 400_000]).map(plain)).toEqual(['0', '200 k', '400 k']);
    expect(formatTicks([0, 8 * 1024 ** 3], 'B').map(plain)).toEqual(['0', '8 GiB']);
    expect(formatTicks([-1, 0, 1]).map(plain)).toEqual(['-1', '0', '1']);
    expect(formatTicks([1e308]).map(plain)).toEqual(['1e308']);
    expect(formatTicks([2e-7, 4e-7]).map(plain)).toEqual(['2e-7', '4e-7']);
  });
});

describe('times', () => {
  const noon = Date.UTC(2026, 10, 30, 12, 0, 0);

  test('spans in the two largest units', () => {
    expect([0.25, 38, 840, 8520, 200_000].map(formatSpan)).toEqual([
      '250 ms',
      '38 s',
      '14 min',
      '2 h 22 min',
      '2 d 7 h',
    ]);
    expect(plain(formatSpan(-38))).toBe('-38 s');
  });

  test('when is a minute today, a day before, a year before that', () => {
    expect(formatWhen(noon, noon + 3_600_000, 'utc')).toBe('12:00');
    expect(formatWhen(noon, noon + 86_400_000, 'utc')).toBe('30 Nov');
    expect(formatWhen(noon, noon + 60 * 86_400_000, 'utc')).toBe('30 Nov 2026');
  });

  test('axis labels are as fine as their step', () => {
    expect(formatTimeTicks([noon, noon + 60_000], 60_000, 'utc')).toEqual(['12:00', '12:01']);
    expect(formatTimeTicks([noon + 1000], 1000, 'utc')).toEqual(['12:00:01']);
    expect(formatTimeTicks([noon, noon + 12 * 3_600_000], 3_600_000, 'utc')).toEqual(['12:00', '1 Dec']);
    expect(formatRelativeTicks([0, 600, 5400], 600)).toEqual(['0', '10 m', '1 h 30']);
  });
});

describe('text from outside', () => {
  test('controls, bidi and zero-width characters become visible', () => {
    expect(visible('a\u202eb\u200bc\nd\u0000')).toBe('a\\u202eb\\u200bc\\nd\\u0000');
    expect(visible('ü 漢 <b>')).toBe('ü 漢 <b>');
  });

  test('long names lose their middle, by characters and not by halves of them', () => {
    expect(cutMiddle('abcdefghij', 5)).toBe('ab…ij');
    expect(cutMiddle('😀😀😀😀😀', 3)).toBe('😀…😀');
    expect([...shown('x'.repeat(1000))].length).toBe(48);
  });

  test('labels are in order and quoted', () => {
    expect(labelText({ b: '"', a: '1' })).toBe('a="1", b="\\""');
  });
});
