/** Inference engines as a server sees them: pages of metrics whose counters go on, also for hours ago. */
import { createServer, type Server } from 'node:http';
import type { Written } from './remote_write';

/** One engine; its numbers are functions of the time. */
export interface Engine {
  /** Empty for one that tells no model, such as llama.cpp. */
  model: string;
  /** Requests that end a second. */
  rate: number;
  running: number;
  waiting: (time: number) => number;
  kv: (time: number) => number;
  /** Since when its users wait long, and when it began anew; ms. */
  slowAt?: number;
  restartedAt?: number;
  /** Answers with this status and text instead of its page. */
  broken?: [status: number, body: string];
}

/** When all engines were started. */
const START = Date.now() - 3 * 3_600_000;

interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Upper bounds of buckets, and the share of requests below each: as usual, and when users wait. */
const TTFT: [string, number, number][] = [
  ['0.1', 0.1, 0.02],
  ['0.5', 0.55, 0.1],
  ['1', 0.8, 0.3],
  ['2.5', 0.97, 0.7],
  ['5', 1, 0.95],
  ['+Inf', 1, 1],
];
const ITL: [string, number, number][] = [
  ['0.02', 0.2, 0.1],
  ['0.05', 0.95, 0.6],
  ['0.1', 0.995, 0.9],
  ['0.5', 1, 0.999],
  ['+Inf', 1, 1],
];
const E2E: [string, number, number][] = [
  ['1', 0.1, 0.02],
  ['5', 0.7, 0.4],
  ['15', 0.98, 0.8],
  ['60', 1, 1],
  ['+Inf', 1, 1],
];

/** Everything that an engine tells at a time. */
export function told(engine: Engine, time: number): Sample[] {
  const since = engine.restartedAt !== undefined && time >= engine.restartedAt ? engine.restartedAt : START;
  const done = ((time - since) / 1000) * engine.rate;
  const late = Math.max(0, (time - Math.max(since, engine.slowAt ?? Infinity)) / 1000) * engine.rate;
  const labels = { model_name: engine.model, engine: '0' };
  if (engine.model === '') {
    const one = (name: string, value: number): Sample => ({ name: `llamacpp:${name}`, labels: {}, value });
    return [
      one('requests_processing', engine.running),
      one('requests_deferred', engine.waiting(time)),
      one('tokens_predicted_total', done * 40),
      one('prompt_tokens_total', done * 120),
    ];
  }
  const one = (name: string, value: number, more: Record<string, string> = {}): Sample => ({
    name: `vllm:${name}`,
    labels: { ...labels, ...more },
    value,
  });
  const histogram = (name: string, buckets: [string, number, number][], times: number): Sample[] => [
    ...buckets.map(([le, usual, slow]) =>
      one(`${name}_bucket`, Math.round(times * ((done - late) * usual + late * slow)), { le }),
    ),
    one(`${name}_count`, Math.round(times * done)),
    one(`${name}_sum`, times * done * 0.4),
  ];
  return [
    ...histogram('time_to_first_token_seconds', TTFT, 1),
    ...histogram('inter_token_latency_seconds', ITL, 150),
    ...histogram('e2e_request_latency_seconds', E2E, 1),
    one('num_requests_running', engine.running),
    one('num_requests_waiting', engine.waiting(time)),
    one('kv_cache_usage_perc', engine.kv(time)),
    one('num_preemptions_total', Math.round(late * 0.1)),
    one('prompt_tokens_total', done * 600),
    one('generation_tokens_total', done * 150),
    one('prefix_cache_hits_total', done * 210),
    one('prefix_cache_queries_total', done * 600),
    one('request_success_total', done * 0.96, { finished_reason: 'stop' }),
    one('request_success_total', done * 0.04, { finished_reason: 'length' }),
    one('novel_feature_total', done),
  ];
}

const escaped = (text: string) =>
  text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');

/** The page as text. */
export function pageOf(engine: Engine, time: number): string {
  const lines = told(engine, time).map(({ name, labels, value }) => {
    const inside = Object.entries(labels).map(([k, v]) => `${k}="${escaped(v)}"`);
    return `${name}{${inside.join(',')}} ${value}`;
  });
  return `${lines.join('\n')}\n`;
}

/** An engine that listens. */
export interface Served {
  engine: Engine;
  address: string;
  server: Server;
}

/** Serves an engine's page on a free port. */
export function serve(engine: Engine): Promise<Served> {
  const server = createServer((_request, answer) => {
    const [status, body] = engine.broken ?? [200, pageOf(engine, Date.now())];
    answer.writeHead(status, { 'content-type': 'text/plain; version=0.0.4' }).end(body);
  });
  return new Promise((done) => {
    server.listen(0, '127.0.0.1', () => {
      const found = server.address();
      const port = typeof found === 'object' && found ? found.port : 0;
      done({ engine, address: `127.0.0.1:${port}`, server });
    });
  });
}

/** The same as a Prometheus would have written it from `from` to `to`. */
export function history(
  { engine, address }: Served,
  target: Record<string, string>,
  [from, to, step]: [number, number, number],
): Written[] {
  const series = new Map<string, Written>();
  for (let ms = from; ms < to; ms += step)
    for (const { name, labels, value } of told(engine, ms)) {
      const all = { __name__: name, instance: address, ...target, ...labels };
      const key = JSON.stringify(all);
      const known: Written = series.get(key) ?? { labels: all, samples: [] };
      known.samples.push({ ms, value });
      series.set(key, known);
    }
  return [...series.values()];
}
