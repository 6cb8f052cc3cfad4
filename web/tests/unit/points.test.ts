import { describe, expect, test } from 'vitest';
import { DecodeError, decodePoints } from '../../src/lib/points';
import { encodePoints } from '../stories/tgp1';

const written = {
  query: 0,
  run_id: 'r',
  metric: 'loss',
  display: 'loss',
  labels: { host: 'a' },
  attempt: 2,
  unit: 's',
  interval: 1,
  total: 3,
  columns: {
    last: [1, Number.NaN, 3],
    min: [0, Number.NaN, 3],
    max: [2, Number.NaN, 3],
    first: [2, Number.NaN, 3],
    count: [2, 0, 1],
  },
  non_finite: [{ x: 5, kind: 'NaN', count: 2 }],
};

const bytes = (buffer: Buffer) => new Uint8Array(buffer).buffer;

describe('TGP1', () => {
  test('what was written comes back', () => {
    const answer = decodePoints(
      bytes(
        encodePoints(
          { axis: 'step', from: 0, to: 9, points_read: 12 },
          [0, 5, 9],
          [written, { ...written, query: 1 }],
        ),
      ),
    );
    expect([...answer.x]).toEqual([0, 5, 9]);
    expect(answer.series).toHaveLength(2);
    const [first, second] = answer.series;
    expect([...first.last]).toEqual([1, Number.NaN, 3]);
    expect([...first.count]).toEqual([2, 0, 1]);
    expect(first.smooth).toBeNull();
    expect(first.nonFinite).toEqual(written.non_finite);
    expect([second.query, [...second.max]]).toEqual([1, [2, Number.NaN, 3]]);
    expect(answer.pointsRead).toBe(12);
  });

  test('an empty answer is one', () => {
    const answer = decodePoints(
      bytes(encodePoints({ axis: 'time', from: 0, to: 0, points_read: 0 }, [], [])),
    );
    expect(answer.series).toEqual([]);
  });

  test('cut or foreign bytes are an error, never a wrong answer', () => {
    const whole = bytes(
      encodePoints({ axis: 'step', from: 0, to: 9, points_read: 12 }, [0, 5, 9], [written]),
    );
    for (const length of [0, 4, 7, 8, 40, whole.byteLength - 8])
      expect(() => decodePoints(whole.slice(0, length))).toThrow();
    expect(() =>
      decodePoints(new TextEncoder().encode('<html>not found</html>').buffer as ArrayBuffer),
    ).toThrow(DecodeError);
  });
});
