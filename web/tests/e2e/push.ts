/** A small writer of the push protocol (`docs/format/push.md`), for tests. */
import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';

/** A point: time in ms, value, step. */
export interface Point {
  ms: number;
  value: number;
  step?: number;
}

/** What to send. */
export interface Push {
  organization?: string;
  workspace?: string;
  project?: string;
  run: string;
  /** 1 opens, 2 heartbeat, 3 finished, 4 failed. */
  event?: number;
  reason?: string;
  job?: string;
  restarts?: number;
  host?: string;
  pid?: number;
  rank?: number;
  world?: number;
  series?: { name: string; labels?: Record<string, string>; points: Point[] }[];
  attributes?: Record<string, string>;
  tags?: string[];
  timeMs?: number;
}

function varint(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = value;
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
  } while (rest);
  return bytes;
}

/** The tag of a field. */
export const key = (field: number, type: number) => Buffer.from(varint(BigInt((field << 3) | type)));
/** A number of a message. */
export const number = (field: number, value: number) =>
  Buffer.concat([key(field, 0), Buffer.from(varint(BigInt(value)))]);
/** Bytes, or a message within a message. */
export const bytes = (field: number, value: Uint8Array) =>
  Buffer.concat([key(field, 2), Buffer.from(varint(BigInt(value.length))), value]);
/** A text; nothing for an empty one. */
export const text = (field: number, value: string | undefined) =>
  value ? bytes(field, Buffer.from(value)) : Buffer.alloc(0);

function deltas(field: number, values: bigint[]): Buffer {
  const packed = Buffer.alloc(values.length * 8);
  let last = 0n;
  values.forEach((value, at) => {
    packed.writeBigInt64LE(value - last, at * 8);
    last = value;
  });
  return bytes(field, packed);
}

/** A series with its points. */
export function series(one: NonNullable<Push['series']>[number]): Buffer {
  const values = Buffer.alloc(one.points.length * 8);
  for (const [at, point] of one.points.entries()) values.writeDoubleLE(point.value, at * 8);
  const labels = Object.entries(one.labels ?? {}).map(([k, v]) =>
    bytes(2, Buffer.concat([text(1, k), text(2, v)])),
  );
  const steps = one.points.every((p) => p.step !== undefined);
  return Buffer.concat([
    text(1, one.name),
    ...labels,
    deltas(
      4,
      one.points.map((p) => BigInt(Math.round(p.ms * 1e3)) * 1000n),
    ),
    bytes(5, values),
    ...(steps
      ? [
          deltas(
            6,
            one.points.map((p) => BigInt(p.step!)),
          ),
        ]
      : []),
  ]);
}

/** A writer: one session of one process. */
export class Writer {
  private readonly id = randomBytes(16);
  private sequence = 0;

  constructor(private readonly url: string) {}

  /** Sends, and fails unless it is durable. */
  async push(what: Push): Promise<void> {
    this.sequence += 1;
    const run = Buffer.concat([
      text(1, what.organization),
      text(2, what.workspace),
      text(3, what.project),
      text(4, what.run),
    ]);
    const session = Buffer.concat([
      number(1, Math.round(what.timeMs ?? Date.now())),
      number(2, what.event ?? 2),
      text(3, what.reason),
      text(4, what.host ?? 'host-1'),
      number(5, what.pid ?? 4242),
      ...(what.rank === undefined ? [] : [number(6, what.rank)]),
      ...(what.world === undefined ? [] : [number(7, what.world)]),
      text(8, what.job),
      number(9, what.restarts ?? 0),
    ]);
    const body = Buffer.concat([
      bytes(1, this.id),
      number(2, this.sequence),
      bytes(3, run),
      bytes(4, session),
      ...(what.series ?? []).map((s) => bytes(5, series(s))),
      ...Object.entries(what.attributes ?? {}).map(([k, v]) =>
        bytes(6, Buffer.concat([text(1, k), text(6, v)])),
      ),
      ...(what.tags ?? []).map((tag) => bytes(7, Buffer.concat([number(1, 1), text(2, tag)]))),
    ]);
    const answer = await fetch(`${this.url}/api/tg/v1/push`, {
      method: 'POST',
      body: new Uint8Array(gzipSync(body)),
      headers: { 'content-type': 'application/x-protobuf', 'content-encoding': 'gzip' },
    });
    if (!answer.ok) throw new Error(`push: ${answer.status} ${await answer.text()}`);
  }
}

/** Points of a formula, one a second, the last one at `endMs`. */
export function curve(count: number, endMs: number, value: (step: number) => number, firstStep = 0): Point[] {
  return Array.from({ length: count }, (_, at) => ({
    ms: endMs - (count - 1 - at) * 1000,
    value: value(firstStep + at),
    step: firstStep + at,
  }));
}
