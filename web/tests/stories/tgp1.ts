/** Writes what the server writes: `TGP1` answers, for tests of the reader and the pages. */

/** One series to write. */
export interface Written {
  query: number;
  run_id: string;
  metric: string;
  display: string;
  labels: Record<string, string>;
  attempt: number;
  unit: string;
  interval: number;
  total: number;
  columns: Record<string, number[]>;
  non_finite: { x: number; kind: string; count: number }[];
}

/** Packs an answer. */
export function encodePoints(
  head: { axis: string; from: number; to: number; points_read: number },
  x: number[],
  series: Written[],
): Buffer {
  let offset = x.length * 8;
  const listed = series.map((s) => {
    const names = Object.keys(s.columns);
    const entry = { ...s, scale: 'ML_STEP', columns: names, offset };
    offset += names.length * x.length * 8;
    return entry;
  });
  const json = Buffer.from(JSON.stringify({ ...head, grid: x.length, series: listed, warnings: [] }));
  const length = Math.ceil((8 + json.length) / 8) * 8 - 8;
  const bytes = Buffer.alloc(8 + length + offset, ' ');
  bytes.write('TGP1', 0, 'latin1');
  bytes.writeUInt32LE(length, 4);
  json.copy(bytes, 8);
  let at = 8 + length;
  for (const column of [x, ...series.flatMap((s) => Object.values(s.columns))]) {
    for (const value of column) at = bytes.writeDoubleLE(value, at);
  }
  return bytes;
}
