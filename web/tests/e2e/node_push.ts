/** An agent as its server sees it (`docs/format/push.md`), for tests: a node's series and events, also of hours ago. */
import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { bytes, key, number, type Push, series, text } from './push';

/** Something that happened on the node. */
export interface NodeEvent {
  ms: number;
  kind: string;
  severity: 'info' | 'warning' | 'critical';
  key: string;
  labels: Record<string, string>;
  text: string;
  body?: Record<string, unknown>;
}

function event(host: string, one: NodeEvent): Buffer {
  const time = Buffer.alloc(8);
  time.writeBigInt64LE(BigInt(Math.round(one.ms)) * 1_000_000n);
  const labels = Object.entries({ host, ...one.labels }).map(([k, v]) =>
    bytes(5, Buffer.concat([text(1, k), text(2, v)])),
  );
  return Buffer.concat([
    key(1, 1),
    time,
    text(2, one.kind),
    text(3, one.severity),
    text(4, one.key),
    ...labels,
    text(6, one.text),
    text(7, JSON.stringify(one.body ?? {})),
  ]);
}

/** One agent. */
export class NodeWriter {
  private readonly id = randomBytes(16);
  private sequence = 0;

  constructor(
    private readonly url: string,
    readonly host: string,
    private readonly intervalMs = 10_000,
  ) {}

  /** Sends a look at the node, and fails unless it is durable and nothing of it was refused. */
  async push(all: NonNullable<Push['series']>, events: NodeEvent[] = [], timeMs = Date.now()): Promise<void> {
    this.sequence += 1;
    const node = Buffer.concat([
      text(1, this.host),
      text(2, `boot-of-${this.host}`),
      text(3, '0.1.0'),
      number(4, 4711),
      number(5, this.intervalMs),
      bytes(6, this.id),
      number(7, Math.round(timeMs)),
    ]);
    const labelled = all.map((one) => ({ ...one, labels: { host: this.host, ...one.labels } }));
    const body = Buffer.concat([
      bytes(1, this.id),
      number(2, this.sequence),
      ...labelled.map((one) => bytes(5, series(one))),
      bytes(10, node),
      ...events.map((one) => bytes(11, event(this.host, one))),
    ]);
    const answer = await fetch(`${this.url}/api/tg/v1/push`, {
      method: 'POST',
      body: new Uint8Array(gzipSync(body)),
      headers: { 'content-type': 'application/x-protobuf', 'content-encoding': 'gzip' },
    });
    if (!answer.ok) throw new Error(`push: ${answer.status} ${await answer.text()}`);
  }
}
