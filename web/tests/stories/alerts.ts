/** Made-up alerts and a made-up remediation, the same each time: the story of the slow rank 17. */
import type { Page } from '@playwright/test';
import type { Alert, AlertGroup, Backtest, Delivery, Silence, Summary } from '../../src/alerts/answers';
import type { Act, Edge, Host, Mode, Pool, RemediationAnswer } from '../../src/remediation/answers';
import { HOSTILE, NOW } from './world';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Which world the pages are shown. */
export type AlertStory = 'usual' | 'calm' | 'storm' | 'hostile' | 'broken' | 'off' | 'forbidden';

const at = (text: string) =>
  Date.UTC(2026, 10, 30, ...(text.split(':').map(Number) as [number, number, number]));

function alert(rule: string, labels: Record<string, string>, more: Partial<Alert>): Alert {
  return {
    rule,
    file: 'starter/verdicts.yml',
    labels: { alertname: rule, ...labels },
    annotations: {},
    state: 'firing',
    since: NOW - 10 * MINUTE,
    value: 1,
    severity: 'page',
    silenced_by: [],
    fingerprint: JSON.stringify([rule, labels]),
    delivered: null,
    ...more,
  };
}

function group(alerts: Alert[], key = `alertname=${alerts[0].rule}`): AlertGroup {
  return {
    key,
    labels: {},
    count: alerts.length,
    severity: alerts[0].severity,
    since: Math.min(...alerts.map((a) => a.since)),
    alerts,
  };
}

const SILENCE: Silence = {
  id: 's-1',
  matchers: [{ name: 'alertname', value: 'TargetDown', is_regex: false, is_equal: true }],
  starts_at: at('9:42:00'),
  ends_at: at('14:00:00'),
  comment: 'image rollout',
  created_by: 'ada',
  state: 'active',
};

const USUAL: Alert[] = [
  alert(
    'StragglerPage',
    {
      run: 'pretrain-7b',
      run_id: 'id-pretrain-7b',
      rank: '17',
      host: 'host-3',
      gpu: '1',
      cause: 'thermal',
      severity: 'page',
    },
    {
      since: at('10:46:00'),
      value: 0.171,
      annotations: { summary: 'host-3 GPU 1, thermal. Costs 17.1 % of step time.' },
    },
  ),
  alert(
    'GoodputBelowTarget',
    { model_name: 'chat-70b', severity: 'page' },
    {
      since: at('10:06:00'),
      value: 0.83,
      file: 'starter/serving.yml',
      annotations: { summary: 'Even the upper bound is below target.' },
    },
  ),
  alert(
    'KvFullWithQueue',
    { model_name: 'chat-70b', replica: '2', severity: 'ticket' },
    {
      state: 'pending',
      severity: 'ticket',
      since: NOW - 6 * MINUTE,
      value: 0.96,
      file: 'starter/serving.yml',
      annotations: { summary: 'KV full while requests wait; KV alone never alerts.' },
    },
  ),
  alert(
    'TargetDown',
    { model_name: 'code-8b', replica: '7', severity: 'ticket' },
    { severity: 'ticket', since: at('9:40:00'), value: 0, silenced_by: ['s-1'], file: 'starter/target.yml' },
  ),
];

const storm = (): Alert[] =>
  Array.from({ length: 500 }, (_, n) =>
    alert(
      n % 5 === 0 ? 'GpuIncidentFatal' : 'NvlinkRecovering',
      { host: `host-${Math.floor(n / 8)}`, gpu: String(n % 8), severity: 'page' },
      {
        since: NOW - 4 * MINUTE,
        annotations: { summary: `GPU ${n % 8} of host-${Math.floor(n / 8)} needs drain_reset` },
      },
    ),
  );

const hostile = (): Alert[] => [
  alert(
    HOSTILE,
    { host: `${HOSTILE}\u202e`, rank: HOSTILE, severity: HOSTILE },
    {
      severity: HOSTILE,
      value: 'NaN',
      annotations: { summary: `\`${HOSTILE}\` \u001b[31mred ${'long '.repeat(80)}` },
    },
  ),
  ...USUAL,
];

const groupsOf = (story: AlertStory): AlertGroup[] => {
  if (story === 'calm' || story === 'off') return [];
  if (story === 'storm') return [group(storm(), 'incident=c-1'), group([USUAL[1]])];
  return (story === 'hostile' ? hostile() : USUAL).map((a) => group([a]));
};

function summary(story: AlertStory): Summary {
  const groups = groupsOf(story);
  const all = groups.flatMap((g) => g.alerts);
  const silenced = all.filter((a) => a.silenced_by.length > 0).length;
  return {
    firing: all.filter((a) => a.state === 'firing').length - silenced,
    pending: all.filter((a) => a.state === 'pending').length,
    silenced,
    groups,
    rules: 34,
    last_evaluation: NOW - 4000,
    errors:
      story === 'broken'
        ? [
            {
              rule: 'ItlTail',
              error: 'the query would read 60,000,000 samples, at most 50,000,000 are allowed',
            },
          ]
        : [],
    deliveries: { today: 41, delivered: story === 'broken' ? 39 : 41 },
  };
}

const delivery = (
  time: string,
  rule: string,
  receiver: string,
  kind: string,
  more: Partial<Delivery> = {},
): Delivery => ({
  id: at(time) + receiver.length,
  time: at(time),
  group: rule,
  receiver,
  kind,
  state: 'firing',
  alerts: 1,
  rules: [rule],
  result: 'delivered',
  status: 200,
  took_ms: 84,
  tries: 1,
  error: null,
  ...more,
});

const DELIVERIES: Delivery[] = [
  delivery('10:46:18', 'StragglerPage', 'ops-train', 'webhook'),
  delivery('10:46:18', 'StragglerPage', '', 'alertmanager', { status: 202, alerts: 2, took_ms: 12 }),
  delivery('10:06:12', 'GoodputBelowTarget', 'ops-serve', 'webhook', {
    took_ms: 31_000,
    tries: 2,
    error: 'timed out',
  }),
  delivery('9:58:44', 'FatalXid', 'ops-train', 'webhook', { took_ms: 79 }),
  delivery('9:41:02', 'TargetDown', 'none', 'webhook', {
    result: 'silenced',
    status: null,
    took_ms: null,
    error: 'silenced: image rollout',
  }),
];

const RULES: [name: string, query: string, seconds: number, severity: string, file: string][] = [
  [
    'StragglerPage',
    'max by (run_id, rank, host, gpu, cause) (tg_straggler{level="page"}) > 0',
    0,
    'page',
    'starter/verdicts.yml',
  ],
  ['GoodputBelowTarget', 'model:goodput_ratio:upper < 0.95', 600, 'page', 'starter/serving.yml'],
  [
    'KvFullWithQueue',
    'model:kv_used_ratio > 0.95 and on (model_name) model:waiting > 0',
    600,
    'ticket',
    'starter/serving.yml',
  ],
  ['TargetDown', 'up == 0', 300, 'ticket', 'starter/target.yml'],
  ['ItlTail', 'model:itl_seconds:p99 > 0.5', 600, 'page', 'starter/serving.yml'],
];

const rules = (story: AlertStory) => ({
  groups: RULES.map(([name, query, duration, severity, file]) => ({
    name: file,
    file,
    interval: 15,
    rules: [
      {
        name,
        query,
        duration,
        keepFiringFor: name === 'StragglerPage' ? 300 : 0,
        type: 'alerting',
        state: 'inactive',
        health: story === 'broken' && name === 'ItlTail' ? 'err' : 'ok',
        ...(story === 'broken' && name === 'ItlTail' ? { lastError: 'the query would read too much' } : {}),
        labels: { severity },
        annotations: { runbook_url: `/docs/runbooks/${name}.md` },
        alerts: [],
      },
    ],
  })),
});

const noise = (n: number) => {
  const value = Math.sin(n * 12.9898) * 43758.5453;
  return value - Math.floor(value);
};

/** A value that was high three times, with a gap in between. */
function backtest(body: { from: number; to: number; step_seconds: number }): Backtest {
  const { from, to } = body;
  const span = to - from;
  const gap = { from: from + span * 0.36, to: from + span * 0.39 };
  const spells = [
    { from: 0.185, to: 0.195, top: 1.13, labels: { run: 'pretrain-7b', rank: '40', cause: 'power_cap' } },
    { from: 0.585, to: 0.592, top: 1.19, labels: { run: 'pretrain-7b', rank: '5', cause: 'host_data' } },
    { from: 0.994, to: 1, top: 1.25, labels: { run: 'pretrain-7b', rank: '17', cause: 'thermal' } },
  ];
  const points: [number, number][] = [];
  for (let time = from, n = 0; time <= to; time += body.step_seconds * 1000, n++) {
    if (time > gap.from && time < gap.to) continue;
    const share = (time - from) / span;
    const spell = spells.find((s) => share >= s.from && share <= s.to);
    points.push([time, spell ? spell.top : 1.01 + 0.015 * noise(n)]);
  }
  return {
    series: [{ labels: { run: 'pretrain-7b' }, points }],
    threshold: [
      { value: 1.05, text: '> 1.05' },
      { value: 1.1, text: '> 1.1' },
    ],
    firings: spells.map((s) => ({ labels: s.labels, from: from + s.from * span, to: from + s.to * span })),
    pending: [],
    gaps: [gap],
    series_total: 1,
    gaps_reason: null,
    step_seconds: body.step_seconds,
    total_seconds: 4 * 3600 + 12 * 60,
  };
}

/** `ALERTS` of the range, as Prometheus answers. */
function matrix(form: URLSearchParams) {
  const [start, end, step] = ['start', 'end', 'step'].map((name) => Number(form.get(name)));
  const grid: number[] = [];
  for (let s = start; s <= end; s += step) grid.push(s);
  const over = (from: number, to: number) =>
    grid.filter((s) => s * 1000 >= from && s * 1000 <= to).map((s): [number, string] => [s, '1']);
  if (form.get('query') !== 'ALERTS')
    return {
      result: [
        {
          metric: {},
          values: grid
            .filter((s) => s * 1000 < NOW - 5 * HOUR || s * 1000 > NOW - 4.7 * HOUR)
            .map((s) => [s, '1']),
        },
      ],
    };
  const one = (n: number, state: string, from: number, to: number) => ({
    metric: { __name__: 'ALERTS', alertstate: state, ...USUAL[n].labels },
    values: over(from, to),
  });
  return {
    result: [
      one(0, 'firing', at('10:46:00'), NOW),
      one(1, 'pending', at('9:56:00'), at('10:06:00')),
      one(1, 'firing', at('10:06:00'), NOW),
      one(2, 'pending', at('10:52:00'), at('10:59:00')),
      one(2, 'pending', at('11:28:00'), NOW),
      one(3, 'pending', at('9:35:00'), at('9:40:00')),
      one(3, 'firing', at('9:40:00'), NOW),
    ],
  };
}

/** The act of the story. */
export const ACT: Act = {
  id: 'a-1',
  key: 'host-3/boot 7f2a/tg-4127',
  host: 'host-3',
  gpu: '1',
  uuid: 'GPU-00000019',
  pool: 'train',
  incident: '',
  verdict: 'straggler',
  title: 'Drain and reset host-3?',
  text: 'GPU 1 runs at 80 % of its peers’ clock for thermal reasons and slows 64 GPUs.',
  evidence: ['verdict of 10:46, throttle counters', '3 of 3 ownership sources agree'],
  affects: [{ run_id: 'id-pretrain-7b', run: 'pretrain-7b', gpus: 64, attempt: 2, dead: false }],
  checkpoint: { step: 6000, age_seconds: 360, steps_lost: 263 },
  lost: { steps: 263, seconds: 900, usd: 9, reason: null },
  confirm: 'host-3',
  gain_ratio: 0.171,
  spare: 'host-31, idle, healthy for 9 days',
  guards: [
    { name: 'budget', ok: true, text: 'Nodes in remediation 1 of 2', hard: true },
    { name: 'breaker', ok: true, text: 'Breaker closed, 3 % newly bad', hard: true },
    { name: 'job', ok: true, text: 'No second node of this job', hard: true },
    { name: 'resets', ok: true, text: 'GPU reset 0 of 2 in 24 h', hard: true },
    { name: 'quiet', ok: true, text: 'Outside quiet window', hard: true },
    { name: 'confidence', ok: null, text: 'Confidence 0.9, no memory temp.', hard: false },
  ],
  commands: [
    { n: 1, kind: 'hook', text: 'checkpoint-now run=pretrain-7b', limit_seconds: 180 },
    { n: 2, kind: 'scontrol', text: 'update nodename=host-3 state=drain reason=tg-4127', limit_seconds: 30 },
    { n: 3, kind: 'hook', text: 'restart run=pretrain-7b step=last exclude=host-3', limit_seconds: 120 },
    { n: 4, kind: 'exec', text: 'reset-gpu host-3 1', limit_seconds: 60 },
  ],
  asked: at('10:46:20'),
  expires: at('12:46:20'),
  mode: 'approve',
  status: 'queued',
  outcome: '',
  step: 1,
};

const edge = (
  time: string,
  host: string,
  from: string,
  to: string,
  actor: string,
  dry: boolean,
  text = '',
): Edge => ({
  time: at(time),
  host,
  gpu: '1',
  from,
  to,
  text,
  actor,
  dry_run: dry,
  evidence: [],
  id: null,
  commands: [],
});

const EDGES: Edge[] = [
  edge('10:46:20', 'host-3', 'suspect', 'suspect', 'policy, rev 7', true, 'suspect → waits for approval'),
  edge('10:46:00', 'host-3', 'healthy', 'suspect', 'policy, rev 7', true, 'verdict straggler, thermal'),
  edge('10:02:51', 'pretrain-7b', '', '', 'restart hook', false, 'restarted from step 2,000'),
  edge(
    '9:58:45',
    'host-6',
    'suspect',
    'suspect',
    'policy, rev 7',
    false,
    'suspect, no action: Xid 94 is app',
  ),
  edge(
    '8:31:07',
    'host-22',
    'draining',
    'needs_human',
    'approved, token 3',
    false,
    'the drain took longer than 5 min',
  ),
  edge('8:24:30', 'host-22', 'cordoned', 'draining', 'approved, token 3', false),
  edge('8:22:10', 'host-22', 'suspect', 'cordoned', 'policy, rev 7', false, 'Xid 79 by the driver'),
  edge('8:22:05', 'host-22', 'healthy', 'suspect', 'policy, rev 7', false, 'Xid 79 by the driver'),
];

const host = (n: number, more: Partial<Host> = {}): Host => ({
  host: `host-${n}`,
  pool: n <= 24 ? 'train' : 'serve',
  state: 'healthy',
  since: NOW - 9 * DAY,
  gpu: '',
  uuid: '',
  incident: '',
  reason: '',
  resets_24h: 0,
  dry_run: false,
  ...more,
});

const pool = (name: string, more: Partial<Pool>): Pool => ({
  pool: name,
  nodes: 24,
  in_remediation: 0,
  budget: 2,
  breaker: 'closed',
  newly_bad_ratio: 0.03,
  quiet: false,
  ...more,
});

function queueOf(story: AlertStory, act: Act): Act[] {
  if (story === 'calm') return [];
  if (story !== 'storm') return [act];
  return Array.from({ length: 60 }, (_, n) => ({
    ...act,
    id: `a-${n}`,
    host: `host-${n + 1}`,
    confirm: `host-${n + 1}`,
    title: `Drain and reset host-${n + 1}?`,
  }));
}

/** What there is of remediation. */
export function remediationOf(story: AlertStory, mode: Mode, outcome = ''): RemediationAnswer {
  if (story === 'off' || mode === 'off')
    return {
      mode: 'off',
      reason: 'there is no policy: write one',
      policy: null,
      pools: [],
      hosts: [],
      waiting: 0,
      queue: [],
      executing: [],
      audit: [],
    };
  const hosts = Array.from({ length: 32 }, (_, n) => host(n + 1));
  if (story !== 'calm') {
    hosts[2] = host(3, {
      state: 'suspect',
      since: at('10:46:00'),
      gpu: '1',
      reason: 'slow rank 17 of `pretrain-7b`, thermal',
      dry_run: true,
    });
    hosts[21] = host(22, {
      state: 'needs_human',
      since: at('8:31:07'),
      gpu: '5',
      reason: 'the drain took longer than 5 min',
      resets_24h: 1,
    });
    hosts[29] = host(30, {
      state: 'validating',
      since: at('11:20:00'),
      gpu: '0',
      reason: 'reset done, DCGM level 2',
    });
  }
  if (story === 'hostile')
    hosts[0] = host(1, {
      host: HOSTILE,
      pool: HOSTILE,
      state: 'draining',
      reason: `${HOSTILE}\u202e\u001b[31m`,
      since: NOW - HOUR,
    });
  const storming = story === 'storm';
  const act: Act = {
    ...ACT,
    outcome,
    ...(story === 'hostile'
      ? {
          host: HOSTILE,
          title: `Drain ${HOSTILE}?`,
          text: HOSTILE,
          commands: [{ n: 1, kind: HOSTILE, text: `rm ${HOSTILE}\u202e\n`, limit_seconds: null }],
          guards: [{ name: 'x', ok: false, text: HOSTILE, hard: true }],
        }
      : {}),
  };
  const queue = queueOf(story, act);
  return {
    mode,
    reason: null,
    policy: { name: 'fleet-default', revision: 7, file: '/etc/truegauge/remediation.toml' },
    pools: [
      pool('train', {
        in_remediation: storming ? 2 : 1,
        breaker: storming ? 'open' : 'closed',
        newly_bad_ratio: storming ? 0.3 : 0.03,
      }),
      pool('serve', { nodes: 8, budget: 1, in_remediation: 1, newly_bad_ratio: 0, quiet: true }),
    ],
    hosts,
    waiting: queue.length,
    queue,
    executing: [],
    audit: story === 'calm' ? [] : EDGES,
  };
}

/** What the page sent. */
export interface Sent {
  path: string;
  body: Record<string, unknown>;
}

/** Answers the questions of both pages; gives what was sent. */
export async function tellAlerts(page: Page, story: AlertStory, mode: Mode = 'dry_run'): Promise<Sent[]> {
  const sent: Sent[] = [];
  let rehearsed = false;
  await page.route(
    /\/api\/(tg\/)?v1\/(alerts|silences|deliveries|rules|remediation|query_range)/,
    async (route) => {
      const request = route.request();
      const url = new URL(request.url());
      const path = url.pathname.replace(/^\/api\/(tg\/)?v1\//, '');
      const prom = !url.pathname.startsWith('/api/tg/');
      const json = (body: unknown) => route.fulfill({ json: body });
      if (story === 'forbidden')
        return route.fulfill({
          status: 403,
          json: {
            error: {
              code: 'forbidden',
              message: 'this needs the scope `read` over all projects',
              hint: 'ask for such a token',
              request_id: 'r-7',
            },
          },
        });
      if (prom && path === 'rules') return json({ status: 'success', data: rules(story) });
      if (path === 'query_range')
        return json({ status: 'success', data: matrix(new URLSearchParams(request.postData() ?? '')) });
      if (path === 'rules/backtest') return json(backtest(request.postDataJSON()));
      if (request.method() === 'DELETE') {
        sent.push({ path: `DELETE ${path}`, body: {} });
        return json({});
      }
      if (request.method() === 'POST') {
        sent.push({ path, body: request.postDataJSON() as Record<string, unknown> });
        if (path.endsWith('/approve')) rehearsed = true;
        if (path === 'remediation/replay')
          return json({
            text: 'fleet-default revision 7: 1 queued',
            events: 12,
            pools: [{ pool: 'train', nodes: 24, most_out: 1 }],
            plans: [ACT],
            audit: EDGES.slice(4),
          });
        return json({ id: 's-2' });
      }
      if (path === 'alerts/summary') return json(summary(story));
      if (path === 'alerts/history')
        return json({
          firings: USUAL.map((a, n) => ({
            rule: a.rule,
            annotations: a.annotations,
            labels: a.labels,
            severity: a.severity,
            start: a.since - n * HOUR,
            end: n === 0 ? null : a.since,
          })),
          next: null,
        });
      if (path === 'silences') return json({ silences: [SILENCE] });
      if (path === 'deliveries') return json({ deliveries: story === 'calm' ? [] : DELIVERIES, next: null });
      if (path.startsWith('rules/'))
        return json({
          runbook: null,
          tests: [1, 2, 3, 4].map((n) => ({ name: String(n), passed: true, error: null })),
          tests_reason: null,
        });
      if (path === 'remediation/audit') return json({ audit: EDGES, next: null });
      return json(remediationOf(story, mode, rehearsed ? 'rehearsed by token ada' : ''));
    },
  );
  return sent;
}
