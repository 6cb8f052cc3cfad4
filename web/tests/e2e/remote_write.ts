/** A small writer of Prometheus' remote write, for tests. */

/** A series with its samples. */
export interface Written {
  labels: Record<string, string>;
  samples: { ms: number; value: number }[];
}

function varint(value: bigint): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; ) {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
    if (!rest) return bytes;
  }
}

const bytes = (field: number, value: Uint8Array) =>
  Buffer.concat([Buffer.from([(field << 3) | 2, ...varint(BigInt(value.length))]), value]);

function series({ labels, samples }: Written): Buffer {
  const names = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return Buffer.concat([
    ...names.map(([k, v]) => bytes(1, Buffer.concat([bytes(1, Buffer.from(k)), bytes(2, Buffer.from(v))]))),
    ...samples.map(({ ms, value }) => {
      const number = Buffer.alloc(9);
      number[0] = (1 << 3) | 1;
      number.writeDoubleLE(value, 1);
      return bytes(2, Buffer.concat([number, Buffer.from([2 << 3, ...varint(BigInt(Math.round(ms)))])]));
    }),
  ]);
}

/** Snappy that compresses nothing: literals of at most 64 KiB. */
function snappy(plain: Uint8Array): Uint8Array {
  const pieces: Uint8Array[] = [Buffer.from(varint(BigInt(plain.length)))];
  for (let at = 0; at < plain.length; at += 65_536) {
    const piece = plain.subarray(at, at + 65_536);
    pieces.push(Buffer.from([61 << 2, (piece.length - 1) & 255, (piece.length - 1) >> 8]), piece);
  }
  return Buffer.concat(pieces);
}

/** Writes, and fails unless all of it is taken. */
export async function remoteWrite(url: string, all: Written[]): Promise<void> {
  const answer = await fetch(`${url}/api/v1/write`, {
    method: 'POST',
    body: new Uint8Array(snappy(Buffer.concat(all.map((one) => bytes(1, series(one)))))),
    headers: {
      'content-type': 'application/x-protobuf',
      'content-encoding': 'snappy',
      'x-prometheus-remote-write-version': '0.1.0',
    },
  });
  if (!answer.ok) throw new Error(`remote write: ${answer.status} ${await answer.text()}`);
}
