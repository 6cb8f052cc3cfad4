/** A trainer's OpenTelemetry export in JSON, as the clients of Megatron-LM send it, for tests. */
import { randomBytes } from 'node:crypto';

/** One process that exports. */
export interface Trainer {
  /** `nemo.run.id`: the run's name. */
  run: string;
  rank: number;
  world: number;
  host?: string;
  /** `service.name`: the run's project. */
  service?: string;
  /** When the process began, ms: what its sums count from. */
  startMs: number;
  /** Further resource attributes; those of the same key win. */
  resource?: Record<string, string | number | boolean>;
}

/** What a log interval records; what is left out is not sent. */
export interface Recorded {
  ms: number;
  loss?: number;
  throughput_tflops?: number;
  tokens_per_sec?: number;
  grad_norm?: number;
  learning_rate?: number;
  memory_allocated_gb?: number;
  /** Skipped in this interval; nothing is sent while it is 0 or left out. */
  skipped_iters?: number;
  /** One observation of the histogram. */
  step_duration_ms?: number;
}

/** A value of an attribute. */
export type Attribute = string | number | boolean;

/** A span. */
export interface SpanSent {
  name: string;
  startMs: number;
  endMs: number;
  /** 16 hex digits; made up unless given. */
  id?: string;
  /** 32 hex digits; one for all spans of a call unless given. */
  trace?: string;
  parent?: string;
  attributes?: Record<string, Attribute>;
  error?: string;
  events?: { name: string; ms: number; attributes?: Record<string, Attribute> }[];
  links?: { trace: string; id: string; attributes?: Record<string, Attribute> }[];
}

/** A log line; severities are 9 info, 13 warn, 17 error. */
export interface LineSent {
  ms: number;
  severity: number;
  body: string;
  trace?: string;
  span?: string;
}

/** The order of the instruments on the wire; the histogram and the counter are told apart below. */
const GAUGES = [
  'loss',
  'throughput_tflops',
  'tokens_per_sec',
  'grad_norm',
  'learning_rate',
  'memory_allocated_gb',
] as const;

/** The bounds that OpenTelemetry's clients have unless told others. */
const BOUNDS = [0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10_000];

const nanos = (ms: number) => String(BigInt(Math.round(ms * 1000)) * 1000n);

/** A number as JSON of OTLP spells it. */
function spelled(value: number): number | string {
  if (Number.isFinite(value)) return value;
  return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity';
}

function written(value: Attribute): object {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: spelled(value) };
}

const attributes = (all: Record<string, Attribute>) =>
  Object.entries(all).map(([key, value]) => ({ key, value: written(value) }));

/** Sends what one process exports. */
export class Exporter {
  private readonly counts = new Array<number>(BOUNDS.length + 1).fill(0);
  private sum = 0;
  private skipped = 0;

  constructor(
    private readonly url: string,
    private readonly trainer: Trainer,
  ) {}

  /** Sends intervals as one request, a point of each; fails unless all were taken. */
  async metrics(recorded: Recorded[]): Promise<void> {
    const metrics = [
      ...this.histogram(recorded),
      ...GAUGES.flatMap((name) => {
        const points = recorded.flatMap((r) => {
          const value = r[name];
          return value === undefined ? [] : [{ timeUnixNano: nanos(r.ms), asDouble: spelled(value) }];
        });
        return points.length > 0
          ? [{ name: `megatron.training.${name}`, gauge: { dataPoints: points } }]
          : [];
      }),
      ...this.counter(recorded),
    ];
    const scopeMetrics = [{ scope: { name: 'nemo.lens' }, metrics }];
    await this.post('metrics', { resourceMetrics: [{ resource: this.resource(), scopeMetrics }] });
  }

  /** Sends spans as one request; fails unless all were taken. */
  async spans(spans: SpanSent[]): Promise<void> {
    const trace = randomBytes(16).toString('hex');
    const sent = spans.map((span) => ({
      traceId: span.trace ?? trace,
      spanId: span.id ?? randomBytes(8).toString('hex'),
      ...(span.parent ? { parentSpanId: span.parent } : {}),
      name: span.name,
      kind: 1,
      startTimeUnixNano: nanos(span.startMs),
      endTimeUnixNano: nanos(span.endMs),
      attributes: attributes(span.attributes ?? {}),
      events: (span.events ?? []).map((e) => ({
        name: e.name,
        timeUnixNano: nanos(e.ms),
        attributes: attributes(e.attributes ?? {}),
      })),
      links: (span.links ?? []).map((l) => ({
        traceId: l.trace,
        spanId: l.id,
        attributes: attributes(l.attributes ?? {}),
      })),
      ...(span.error === undefined ? {} : { status: { code: 2, message: span.error } }),
    }));
    const scopeSpans = [{ scope: { name: 'nemo.lens' }, spans: sent }];
    await this.post('traces', { resourceSpans: [{ resource: this.resource(), scopeSpans }] });
  }

  /** Sends log lines as one request; fails unless all were taken. */
  async logs(lines: LineSent[]): Promise<void> {
    const logRecords = lines.map((line) => ({
      timeUnixNano: nanos(line.ms),
      severityNumber: line.severity,
      body: { stringValue: line.body },
      ...(line.trace ? { traceId: line.trace, spanId: line.span } : {}),
    }));
    const scopeLogs = [{ scope: { name: 'megatron.training' }, logRecords }];
    await this.post('logs', { resourceLogs: [{ resource: this.resource(), scopeLogs }] });
  }

  private histogram(recorded: Recorded[]): object[] {
    const dataPoints = recorded.flatMap((r) => {
      const took = r.step_duration_ms;
      if (took === undefined) return [];
      const at = BOUNDS.findIndex((bound) => took <= bound);
      this.counts[at < 0 ? BOUNDS.length : at]++;
      this.sum += took;
      return [
        {
          startTimeUnixNano: nanos(this.trainer.startMs),
          timeUnixNano: nanos(r.ms),
          count: String(this.counts.reduce((all, n) => all + n, 0)),
          sum: this.sum,
          bucketCounts: this.counts.map(String),
          explicitBounds: BOUNDS,
        },
      ];
    });
    if (dataPoints.length === 0) return [];
    const histogram = { aggregationTemporality: 2, dataPoints };
    return [{ name: 'megatron.training.step_duration_ms', unit: 'ms', histogram }];
  }

  private counter(recorded: Recorded[]): object[] {
    const dataPoints = recorded.flatMap((r) => {
      this.skipped += r.skipped_iters ?? 0;
      if (this.skipped === 0) return [];
      const startTimeUnixNano = nanos(this.trainer.startMs);
      return [{ startTimeUnixNano, timeUnixNano: nanos(r.ms), asInt: String(this.skipped) }];
    });
    if (dataPoints.length === 0) return [];
    const sum = { aggregationTemporality: 2, isMonotonic: true, dataPoints };
    return [{ name: 'megatron.training.skipped_iters', sum }];
  }

  private resource(): object {
    const { run, rank, world, host, service, resource } = this.trainer;
    const all: Record<string, Attribute> = {
      'service.name': service ?? 'megatron-lm',
      'service.instance.id': `${run}-rank${rank}`,
      'nemo.run.id': run,
      'dl.rank': rank,
      'dl.world_size': world,
      'host.name': host ?? `host-${Math.floor(rank / 8) + 1}`,
      'process.pid': 1000 + rank,
      ...resource,
    };
    return { attributes: attributes(all) };
  }

  private async post(signal: 'metrics' | 'traces' | 'logs', body: object): Promise<void> {
    const answer = await fetch(`${this.url}/v1/${signal}`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json' },
    });
    const said = await answer.text();
    // A rejection is told in an answer that is otherwise well.
    if (!answer.ok || /"rejected\w+":/.test(said)) throw new Error(`${signal}: ${answer.status} ${said}`);
  }
}

/** Seconds that parts of an iteration take; the rest of it has no span. */
export interface Parts {
  forward_backward: number;
  communication?: number;
  optimizer: number;
  /** Behind everything that has a span. */
  rest?: number;
}

/** The spans of one iteration: the whole, and what is in it, one after the other. */
export function iteration(number: number, startMs: number, parts: Parts): SpanSent[] {
  const id = randomBytes(8).toString('hex');
  const trace = randomBytes(16).toString('hex');
  let at = startMs;
  const part = (name: string, seconds: number, parent = id): SpanSent => {
    const span = { name, trace, parent, startMs: at, endMs: at + seconds * 1000 };
    at = span.endMs;
    return span;
  };
  const within = [
    part('megatron.train.iteration.forward_backward', parts.forward_backward),
    ...(parts.communication ? [part('megatron.grad_sync.finish', parts.communication)] : []),
    part('megatron.train.iteration.optimizer', parts.optimizer),
  ];
  const whole = {
    name: 'megatron.train.iteration',
    id,
    trace,
    startMs,
    endMs: at + (parts.rest ?? 0) * 1000,
    attributes: { 'megatron.iteration': number },
  };
  return [...within, whole];
}
