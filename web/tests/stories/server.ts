/** A server with a made-up world behind the real interface: for looking at pages in every state. */
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { extname, join } from 'node:path';
import { device, report } from '../e2e/machines';
import { firingsOf, healthOf } from './health';
import { oddRun, wideRun } from './odd';
import { madeSpan, madeSpans } from './spans';
import { encodePoints, type Written } from './tgp1';
import { trainedRun } from './training';
import { NOW, type StoryMetric, type StoryRun, storyRuns } from './world';

const TYPES: Record<string, string> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};

const promql = (name: string) => name.replace(/[^a-zA-Z0-9_:]/g, '_');
const spell = (value: number) =>
  Number.isFinite(value) ? value : Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';

function row(run: StoryRun, metric: string | null) {
  const shown = run.metrics.find((m) => m.display === (metric ?? 'loss'));
  return {
    run_id: run.run_id,
    organization: 'acme',
    workspace: 'research',
    project: run.project,
    run: run.run,
    state: run.state,
    state_since_ms: run.started + run.seconds * 1000,
    state_reason: run.reason,
    created_ms: run.started,
    started_ms: run.started,
    ended_ms: ['finished', 'failed'].includes(run.state) ? run.started + run.seconds * 1000 : null,
    elapsed_seconds: run.seconds,
    attempts: run.attempts.length,
    hosts: run.hosts,
    sessions_live: run.state === 'running' ? run.hosts.length : 0,
    tags: run.tags,
    description: '',
    last_step: run.steps,
    last_time_ms: run.started + run.seconds * 1000,
    points: run.steps * run.metrics.length,
    series: run.metrics.length,
    verdict: run.run === 'pretrain-7b' ? { claim: 'Rank 17 is slow', level: 'page' } : null,
    spread: run.run === 'pretrain-7b' ? 0.25 : null,
    metric: shown ? { name: shown.display, last: spell(shown.value(run.steps)) } : null,
  };
}

interface Body {
  axis: string;
  from: number | null;
  to: number | null;
  buckets: number;
  smooth: { kind: string } | null;
  queries: { run_id: string; metric: string; limit?: number }[];
}

function place(run: StoryRun, axis: string, step: number): number {
  const seconds = (step / run.steps) * run.seconds;
  return axis === 'step' ? step : axis === 'time' ? run.started + seconds * 1000 : seconds;
}

function points(runs: StoryRun[], body: Body): Buffer {
  const found = body.queries.flatMap((query, at) => {
    const run = runs.find((r) => r.run_id === query.run_id);
    const metrics = run?.metrics.filter((m) => m.display === query.metric) ?? [];
    const sent = metrics.slice(0, query.limit ?? 50);
    return run ? sent.map((metric) => ({ at, run, metric, total: metrics.length })) : [];
  });
  const low = body.from ?? Math.min(...found.map((f) => place(f.run, body.axis, 0)), Infinity);
  const high = body.to ?? Math.max(...found.map((f) => place(f.run, body.axis, f.run.steps)), -Infinity);
  if (found.length === 0) return encodePoints({ axis: body.axis, from: 0, to: 0, points_read: 0 }, [], []);
  const width = (high - low) / body.buckets;
  const grid = Array.from({ length: body.buckets }, (_, at) => low + width * (at + 1));
  const series: Written[] = [];
  let read = 0;
  for (const { at, run, metric, total } of found) {
    const attempts = body.axis === 'step' ? run.attempts : [{ number: 1, from: 0, to: run.steps }];
    for (const attempt of attempts) {
      const written = bucketed(run, metric, body, attempt, low, width);
      read += attempt.to - attempt.from;
      series.push({
        ...written,
        query: at,
        run_id: run.run_id,
        metric: promql(metric.display),
        display: metric.display,
        labels: metric.labels,
        attempt: attempt.number,
        unit: metric.unit,
        total,
        interval: place(run, body.axis, 1) - place(run, body.axis, 0),
      });
    }
  }
  return encodePoints({ axis: body.axis, from: low, to: high, points_read: read }, grid, series);
}

function bucketed(
  run: StoryRun,
  metric: StoryMetric,
  body: Body,
  attempt: { from: number; to: number },
  low: number,
  width: number,
) {
  const empty = () => new Array<number>(body.buckets).fill(Number.NaN);
  const columns: Record<string, number[]> = {
    last: empty(),
    min: empty(),
    max: empty(),
    first: empty(),
    count: new Array(body.buckets).fill(0),
  };
  const nonFinite: Written['non_finite'] = [];
  const average: number[] = empty();
  let mean = Number.NaN;
  for (let step = attempt.from; step <= attempt.to; step++) {
    // The host was silent for a while.
    if (!metric.stepped && step > 4800 && step < 5000) continue;
    const x = place(run, body.axis, step);
    const at = Math.min(body.buckets - 1, Math.max(0, Math.ceil((x - low) / width) - 1));
    if (x < low - 1e-9 || x > low + width * body.buckets + 1e-9) continue;
    const value = metric.value(step);
    columns.count[at]++;
    if (!Number.isFinite(value)) {
      nonFinite.push({ x, kind: String(spell(value)), count: 1 });
      continue;
    }
    mean = Number.isNaN(mean) ? value : mean * 0.95 + value * 0.05;
    average[at] = mean;
    if (Number.isNaN(columns.first[at])) columns.first[at] = value;
    columns.last[at] = value;
    columns.min[at] = Number.isNaN(columns.min[at]) ? value : Math.min(columns.min[at], value);
    columns.max[at] = Number.isNaN(columns.max[at]) ? value : Math.max(columns.max[at], value);
  }
  if (body.smooth) columns.smooth = average;
  return { columns, non_finite: nonFinite };
}

function detail(run: StoryRun) {
  const at = (step: number) => run.started + (step / run.steps) * run.seconds * 1000;
  return {
    ...row(run, null),
    attributes: {
      'config/lr': 3e-4,
      'config/layers': 32,
      'data/version': 'v3',
      'git/commit': 'a1b2c3d',
      'system/host': run.hosts[0],
    },
    attempts_list: run.attempts.map((a) => ({
      number: a.number,
      started_ms: at(a.number === 1 ? 0 : 2380),
      ended_ms: a.to === run.steps ? null : at(a.to),
      job_token: `job ${a.number}`,
      restart_count: a.number - 1,
    })),
    sessions: run.hosts.map((host, rank) => ({
      host,
      pid: 4000 + rank,
      rank,
      attempt: run.attempts.length,
      started_ms: run.started,
      heartbeat_ms: NOW - 3000,
      ended_ms: null,
      end: null,
    })),
    dropped: { queue_full: 12 },
    refused: {},
  };
}

function metrics(run: StoryRun) {
  return run.metrics.map((m) => ({
    name: promql(m.display),
    display: m.display,
    labels: m.labels,
    scale: 'ML_STEP',
    points: run.steps,
    last_step: m.stepped ? run.steps : null,
    last: spell(m.value(run.steps)),
    first_time_ms: run.started,
    last_time_ms: run.started + run.seconds * 1000,
    unit: m.unit,
    kind: m.kind,
    help: m.help,
    caveat: m.caveat,
  }));
}

/** Why the run has no GPU series, and what each of its processes captures. */
function missing(run: StoryRun) {
  const names = ['utilization', 'power_watts', 'sm_clock_mhz'].map((name) => `system/gpu/${name}`);
  return {
    run_id: run.run_id,
    expected: 14,
    present: 11,
    missing: [
      {
        reason: 'not_permitted',
        text: `The driver of \`${run.hosts[0]}\` does not let this user read its GPUs.`,
        hint: 'Let the container see the devices.',
        command: 'ls -l /dev/nvidia*',
        since: run.started + 60_000,
        alarm: true,
        metrics: names.map((display) => ({ name: promql(display), display, unit: '' })),
        places: run.hosts.map((host) => ({ host, gpu: '0', pid: null, rank: null })),
      },
      {
        reason: 'mig',
        text: 'GPU 1 is partitioned with MIG and left out.',
        hint: null,
        command: null,
        since: null,
        alarm: false,
        metrics: names.map((display) => ({ name: promql(display), display, unit: '' })),
        places: run.hosts.map((host) => ({ host, gpu: '1', pid: null, rank: null })),
      },
    ],
    capture: run.hosts.map((host, rank) => report({ host, rank, pid: 4000 + rank, devices: [device(0)] })),
  };
}

/** What there is of a run, by the end of its path. */
const parts = (run: StoryRun, query: URLSearchParams): Record<string, () => object> => ({
  '': () => detail(run),
  metrics: () => ({ metrics: metrics(run) }),
  missing: () => missing(run),
  timeline: () =>
    query.get('part') === 'span' ? madeSpan(query) : madeSpans({ microbatches: 4, layers: 6 }),
});

async function readBody(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const piece of request) text += piece;
  return text;
}

async function api(
  runs: StoryRun[],
  url: URL,
  request: IncomingMessage,
  answer: ServerResponse,
): Promise<void> {
  const path = url.pathname.replace('/api/tg/v1/', '');
  const json = (body: unknown, status = 200) =>
    answer.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  const [, id, part] = path.split('/');
  if (path === 'stream') {
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    answer.write('event: ping\ndata: {}\n\n');
    return;
  }
  if (path === 'points') {
    answer
      .writeHead(200, { 'content-type': 'application/octet-stream' })
      .end(points(runs, JSON.parse(await readBody(request)) as Body));
    return;
  }
  if (path === 'runs') {
    const state = url.searchParams.get('state');
    const listed = runs.filter((r) => !state || r.state === state);
    const from = Number(url.searchParams.get('cursor') ?? 0);
    const counts: Record<string, number> = {};
    for (const run of runs) counts[run.state] = (counts[run.state] ?? 0) + 1;
    json({
      runs: listed.slice(from, from + 200).map((r) => row(r, url.searchParams.get('metric'))),
      next: from + 200 < listed.length ? String(from + 200) : null,
      total: runs.length,
      matching: listed.length,
      counts,
      warnings: [],
    });
    return;
  }
  if (path === 'alerts/history') {
    const of = runs.find((r) => r.run_id === url.searchParams.get('run_id'));
    json({ firings: of ? firingsOf(of, runs.indexOf(of)) : [], next: null });
    return;
  }
  const run = runs.find((r) => r.run_id === id);
  if (run && part === 'health') {
    json(healthOf(run, runs.indexOf(run)));
    return;
  }
  const told = run && parts(run, url.searchParams)[part ?? ''];
  if (!told)
    json(
      {
        error: {
          code: 'not_found',
          message: `no run ${id}`,
          hint: 'the list of runs has all',
          request_id: 'r-1',
        },
      },
      404,
    );
  else json(told());
}

/** Starts it on a free port. */
export function startStories(count: number, port = 0): Promise<{ url: string; server: Server }> {
  const runs = [...storyRuns(count), oddRun(), wideRun(), trainedRun()];
  const dist = join(import.meta.dirname, '../../dist');
  const server = createServer((request, answer) => {
    const url = new URL(request.url ?? '/', 'http://stories');
    if (url.pathname.startsWith('/api/')) {
      void api(runs, url, request, answer);
      return;
    }
    const asked = join(dist, url.pathname);
    const file = existsSync(asked) && statSync(asked).isFile() ? asked : join(dist, 'index.html');
    answer.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    createReadStream(file).pipe(answer);
  });
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => {
      const address = server.address();
      resolve({
        url: `http://127.0.0.1:${typeof address === 'object' && address ? address.port : port}`,
        server,
      });
    });
  });
}
