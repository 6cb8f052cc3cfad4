/** The Alerts page's pure parts: rows, words, strips, filters, silences, files. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Alert, AlertGroup, Backtest, Delivery, Summary } from '../../src/alerts/answers';
import { backtestText, boundsOf, pathOf } from '../../src/alerts/backtest';
import { placesOf } from '../../src/alerts/facts';
import { testedRange } from '../../src/alerts/model';
import { runbookOf } from '../../src/alerts/rule_panel';
import { alertYaml } from '../../src/alerts/rule_text';
import { endOf } from '../../src/alerts/silence';
import {
  ofAlerts,
  type Segment,
  segmentsOf,
  silencedSince,
  stripsOf,
  stripText,
  untilNow,
} from '../../src/alerts/strip';
import { deliveryText } from '../../src/alerts/tables';
import {
  calmSentence,
  causeText,
  completions,
  conditionOf,
  isMatched,
  keeper,
  matchersOf,
  matcherText,
  rowsOf,
  scopeText,
  sinceText,
  testedOf,
  tone,
  unknownKeys,
  valueText,
  waitsText,
} from '../../src/alerts/words';
import { type RangeAnswer, type Series, seriesOf } from '../../src/explore/answer';
import { firing, tellDuty, waiting, watchDuty } from '../../src/lib/duty';
import { formatBrief } from '../../src/lib/number';

const HOSTILE = '<img src=x onerror=alert(1)>"}\u202e';
const MINUTE = 60_000;
const NOW = Date.UTC(2026, 10, 30, 11, 34);

const alert = (rule: string, more: Partial<Alert> = {}): Alert => ({
  rule,
  file: 'a.yml',
  labels: { alertname: rule },
  annotations: {},
  state: 'firing',
  since: NOW,
  value: 1,
  severity: 'page',
  silenced_by: [],
  fingerprint: rule,
  delivered: null,
  ...more,
});

const group = (...alerts: Alert[]): AlertGroup => ({
  key: alerts[0].fingerprint,
  labels: {},
  count: alerts.length,
  severity: alerts[0].severity,
  since: alerts[0].since,
  alerts,
});

const summary: Summary = {
  firing: 0,
  pending: 0,
  silenced: 0,
  groups: [],
  rules: 34,
  last_evaluation: NOW - 4000,
  errors: [],
  deliveries: { today: 41, delivered: 41 },
};

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe('rows', () => {
  test('a cause is one row in each section that it has alerts in; pages come before tickets', () => {
    const storm = Array.from({ length: 500 }, (_, n) => alert('Down', { fingerprint: String(n) }));
    storm[7] = { ...storm[7], silenced_by: ['s'] };
    storm[8] = { ...storm[8], state: 'pending' };
    const ticket = alert('Ticket', { severity: 'ticket', since: NOW + 1 });
    const rows = rowsOf([group(ticket), group(...storm)], () => true);
    expect(rows.get('firing')!.map((r) => [r.alerts[0].rule, r.alerts.length])).toEqual([
      ['Down', 498],
      ['Ticket', 1],
    ]);
    expect(rows.get('silenced')!.map((r) => r.alerts.length)).toEqual([1]);
    expect(rows.get('pending')!.map((r) => r.alerts.length)).toEqual([1]);
  });

  test('a severity of any word has a tone', () => {
    expect(['page', 'critical', 'ticket', 'warning', 'info', '', HOSTILE].map(tone)).toEqual([
      'crit',
      'crit',
      'warn',
      'warn',
      'info',
      'info',
      'info',
    ]);
  });
});

describe('words', () => {
  test('the place is said by what tells it, and hostile labels are made visible', () => {
    expect(scopeText({ run: 'pretrain-7b', host: 'host-3', rank: '17', severity: 'page' })).toBe(
      'pretrain-7b, rank 17, host-3',
    );
    expect(scopeText({ model_name: 'chat-70b', replica: '2' })).toBe('chat-70b, replica 2');
    expect(scopeText({ alertname: 'X', zone: 'a' })).toBe('zone="a"');
    expect(scopeText({ host: HOSTILE })).not.toContain('\u202e');
    expect(scopeText({})).toBe('');
  });

  test('the condition is the first comparison outside parentheses', () => {
    expect(conditionOf('kv > 0.95 and on (model) waiting > 0')).toBe('> 0.95');
    expect(conditionOf('(a > 1) >= 2')).toBe('≥ 2');
    expect(conditionOf('absent(up{job=~"a>b"})')).toBe('');
    expect(waitsText('up == 0', 300)).toBe('== 0, for 5 min');
    expect(waitsText('absent(up)', 0)).toBe('at once');
  });

  test('how long it has been so; of a pending one, out of how long', () => {
    const row = (section: 'firing' | 'pending', since: number) => ({
      section,
      alerts: [alert('A', { since })],
    });
    expect(sinceText(row('firing', NOW - 48 * MINUTE), NOW, 600)).toBe('48 min');
    expect(sinceText(row('pending', NOW - 6.5 * MINUTE), NOW, 600)).toBe('6 of 10 min');
    expect(sinceText(row('pending', NOW - 20_000), NOW, 30)).toBe('20 of 30 s');
    // The clock of the server is ahead.
    expect(sinceText(row('firing', NOW + MINUTE), NOW, 600)).toBe('0 s');
  });

  test('what is calm is said with numbers', () => {
    expect(calmSentence(summary, NOW)).toBe(
      'Nothing fires. 34 rules, last evaluation 4 s ago, 41 of 41 delivered.',
    );
    expect(
      calmSentence(
        { ...summary, rules: 0, last_evaluation: null, deliveries: { today: 0, delivered: 0 } },
        NOW,
      ),
    ).toBe('Nothing fires. 0 rules, none evaluated yet, nothing to deliver today.');
    expect(calmSentence({ ...summary, deliveries: { today: null, delivered: null } }, NOW)).toBe(
      'Nothing fires. 34 rules, last evaluation 4 s ago.',
    );
  });

  test('values and their ends', () => {
    expect([0.83, 1, 0, 'NaN', '-Inf', null].map((v) => valueText(v as number))).toEqual([
      '0.83',
      '1',
      '0',
      'NaN',
      '\u2212Inf',
      '—',
    ]);
    expect([17.1, 10, 100, 0.5, 1000, 1e6, 1e-7].map((v) => formatBrief(v))).toEqual([
      '17.1',
      '10',
      '100',
      '0.5',
      '1,000',
      '1\u2009M',
      '1e\u22127',
    ]);
    expect(formatBrief(30, '%')).toBe('30\u2009%');
  });

  test('tests are counted, and what failed is told', () => {
    const detail = (tests: { name: string; passed: boolean; error: string | null }[] | null) => ({
      runbook: null,
      tests,
      tests_reason: null,
    });
    expect(
      testedOf(
        detail([
          { name: 'a', passed: true, error: null },
          { name: 'b', passed: false, error: 'got 1' },
        ]),
      ),
    ).toEqual({ passed: 1, failed: 1, failures: ['b: got 1'] });
    expect([testedOf(null), testedOf(detail(null)), testedOf(detail([]))]).toEqual([null, null, null]);
  });

  test('a cause is named where it is more than the rule', () => {
    const of = (key: string, labels = {}) => causeText({ ...group(alert('A')), key, labels });
    expect(of('alertname=A')).toBe('');
    expect(of('run_id=ab12', { run: 'pretrain-7b' })).toBe('cause: run pretrain-7b');
    expect(of('incident=i-7')).toBe('cause: incident=i-7');
  });

  test('a message is told by its status, its time and what went wrong before', () => {
    const sent: Delivery = {
      id: 1,
      time: NOW,
      group: 'g',
      receiver: 'r',
      kind: 'webhook',
      state: 'firing',
      alerts: 1,
      rules: ['A'],
      result: 'delivered',
      status: 200,
      took_ms: 84,
      tries: 1,
      error: null,
    };
    expect(deliveryText(sent)).toBe('200 in 84\u2009ms');
    expect(deliveryText({ ...sent, took_ms: 31_000, tries: 2, error: 'timed out' })).toBe(
      'timed out, 2 tries, 200 after 31 s',
    );
    expect(deliveryText({ ...sent, result: 'failed', status: 500, tries: 5 })).toBe('failed, 5 tries, 500');
    expect(
      deliveryText({ ...sent, result: 'dropped', status: null, error: `no room ${HOSTILE}` }),
    ).not.toContain('\u202e');
  });

  test('a runbook is linked only where it is a page', () => {
    const rule = (url: string) => ({ annotations: { runbook_url: url } }) as never;
    expect(runbookOf(rule('/docs/runbooks/A.md'), null)).toBe('/docs/runbooks/A.md');
    expect(runbookOf(rule('https://wiki/a'), null)).toBe('https://wiki/a');
    for (const url of ['javascript:alert(1)', '//evil', 'data:text/html,x', ''])
      expect(runbookOf(rule(url), null)).toBe('');
  });
});

test('the labels of an alert lead to the pages of what they name', () => {
  const hrefs = (labels: Record<string, string>) => placesOf(labels).map((p) => p.href);
  expect(hrefs({ run_id: 'a/b', run: 'x', host: 'h 1', gpu: '3', uuid: 'GPU-1' })).toEqual([
    '/r/a%2Fb',
    '/fleet/h%201/3?uuid=GPU-1',
    '/remediation?host=h+1&gpu=3',
  ]);
  expect(hrefs({ model_name: 'acme/chat' })).toEqual(['/inference/acme%2Fchat']);
  expect(hrefs({ host: HOSTILE })[0]).toMatch(/^\/fleet\?f=host%3A%22%3Cimg/);
  expect(hrefs({ zone: 'a' })).toEqual([]);
});

describe('filter', () => {
  const all = [
    alert('Straggler', { labels: { alertname: 'Straggler', run: 'pretrain-7b', rank: '17' } }),
    alert('Down', { severity: 'ticket', labels: { alertname: 'Down', host: 'a b' }, silenced_by: ['s'] }),
  ];
  const kept = (text: string) => all.filter(keeper(text)).map((a) => a.rule);

  test('keys are labels and what an alert has beside them', () => {
    expect(kept('severity:page')).toEqual(['Straggler']);
    expect(kept('-severity:page')).toEqual(['Down']);
    expect(kept('state:silenced')).toEqual(['Down']);
    expect(kept('run:pretrain-*')).toEqual(['Straggler']);
    expect(kept('host:"a b"')).toEqual(['Down']);
    expect(kept('host:-')).toEqual(['Straggler']);
    expect(kept('PRETRAIN')).toEqual(['Straggler']);
    expect(kept('')).toEqual(['Straggler', 'Down']);
    // What is over has neither a state nor a file.
    const over = { rule: 'Down', labels: { host: 'a' }, annotations: {}, severity: 'page' };
    expect(keeper('host:a severity:page')(over)).toBe(true);
    expect([keeper('state:firing')(over), keeper('file:*')(over)]).toEqual([false, false]);
  });

  test('completions count, and unknown keys are told of', () => {
    const groups = all.map((a) => group(a));
    expect(completions('sev', groups)).toEqual([{ text: 'severity:', count: null }]);
    expect(completions('host:', groups)).toEqual([{ text: 'host:"a b"', count: 1 }]);
    expect([...unknownKeys('nix:1 rank:17', groups).keys()]).toEqual(['nix']);
    expect([...unknownKeys('nix:1', []).keys()]).toEqual([]);
  });
});

describe('strips', () => {
  const STEP = MINUTE;
  const FROM = NOW - 9 * MINUTE;
  const series = (labels: Record<string, string>, places: number[]): Series =>
    seriesOf(
      labels,
      places.map((at) => [(FROM + at * STEP) / 1000, '1']),
      FROM,
      STEP,
      10,
    );
  const answer = (all: Series[]) =>
    ({
      range: { from: FROM, to: NOW },
      step: STEP,
      x: Float64Array.from({ length: 10 }, (_, at) => FROM + at * STEP),
      series: all,
    }) as unknown as RangeAnswer;
  const one = alert('A', { labels: { alertname: 'A', host: 'h' } });
  const labels = { __name__: 'ALERTS', alertname: 'A', host: 'h' };

  test('pending is hatched, firing solid, and a gap between two firings stays one', () => {
    const all = answer([
      series({ ...labels, alertstate: 'pending' }, [2, 3]),
      series({ ...labels, alertstate: 'firing' }, [4, 5, 8]),
      series({ ...labels, host: 'other', alertstate: 'firing' }, [0]),
    ]);
    const own = ofAlerts(stripsOf(all), [one]);
    expect(segmentsOf(all, own, null, null)).toEqual([
      { kind: 'pending', from: 0.2, to: 0.4 },
      { kind: 'firing', from: 0.4, to: 0.6 },
      { kind: 'firing', from: 0.8, to: 0.9 },
    ]);
  });

  test('from its silence on it is silenced, and where nobody looked it says so', () => {
    const all = answer([series({ ...labels, alertstate: 'firing' }, [4, 5, 6, 7, 8, 9])]);
    const own = ofAlerts(stripsOf(all), [one]);
    const looked = series({}, [0, 1, 3, 4, 5, 6, 7, 8, 9]);
    const segments = segmentsOf(all, own, looked, FROM + 6 * STEP);
    expect(segments.map((s) => s.kind)).toEqual(['absent', 'firing', 'silenced']);
    expect(segments[0]).toMatchObject({ from: 0.2, to: 0.3 });
    expect(stripText(segments, FROM, NOW, (ms) => String((ms - FROM) / STEP))).toContain('silenced');
    // A server that doesn't count its evaluations says nothing of them.
    expect(segmentsOf(all, own, series({}, []), null).map((s) => s.kind)).toEqual(['firing']);
    expect(stripText([], FROM, NOW, String)).toBe('nothing recorded in this range');
  });

  test('what began after the last step is told by the alert itself', () => {
    const range = { from: FROM, to: FROM + 100 };
    const before: Segment[] = [{ kind: 'absent', from: 0, to: 0.9 }];
    expect(untilNow(before, 'firing', FROM + 99, range)).toEqual([
      ...before,
      { kind: 'firing', from: 0.99, to: 1 },
    ]);
    expect(untilNow([], 'pending', FROM - 50, range)).toEqual([{ kind: 'pending', from: 0, to: 1 }]);
    const told: Segment[] = [{ kind: 'firing', from: 0.4, to: 0.5 }];
    expect(untilNow(told, 'firing', FROM + 40, range)).toBe(told);
    expect(untilNow([], 'firing', FROM + 101, range)).toEqual([]);
  });

  test('labels that the server adds for others don’t hide a strip', () => {
    const all = answer([
      series({ ...labels, alertstate: 'firing' }, [4]),
      series({ ...labels, host: 'other', alertstate: 'firing' }, [5]),
    ]);
    const told = alert('A', { labels: { ...one.labels, cluster: 'c' } });
    expect(ofAlerts(stripsOf(all), [told]).map((s) => s.labels.host)).toEqual(['h']);
    expect(ofAlerts(stripsOf(all), [alert('B')])).toEqual([]);
  });

  test('a silence counts from the first of those that hold it', () => {
    const silence = (id: string, starts_at: number) => ({ id, starts_at }) as never;
    const held = alert('A', { silenced_by: ['a', 'b'] });
    expect(silencedSince([held], [silence('a', 5), silence('b', 3), silence('c', 1)])).toBe(3);
    expect(silencedSince([held], [])).toBeNull();
  });
});

describe('silences', () => {
  test('an end lies ahead; a time of day is the next one', () => {
    expect(endOf('4h', '', NOW)).toBe(NOW + 240 * MINUTE);
    expect(endOf('until', '14:00', NOW)).toBe(Date.UTC(2026, 10, 30, 14));
    expect(endOf('until', '9:00', NOW)).toBe(Date.UTC(2026, 11, 1, 9));
    expect(endOf('until', '2026-12-24 18:00', NOW)).toBe(Date.UTC(2026, 11, 24, 18));
    for (const text of ['', '25:00', 'soon', '2020-01-01 00:00'])
      expect(endOf('until', text, NOW)).toBeNull();
  });

  test('what is matched is what has all labels', () => {
    const own = alert('A', { labels: { host: HOSTILE, alertstate: 'firing' } });
    const matchers = matchersOf(own);
    expect(matchers.map((m) => m.name)).toEqual(['alertname', 'host']);
    expect(isMatched(own, matchers)).toBe(true);
    expect(isMatched(alert('A'), matchers)).toBe(false);
    expect(isMatched(alert('A'), [{ name: 'host', value: '(', is_regex: true, is_equal: true }])).toBe(false);
    expect(matcherText({ name: 'a', value: 'b"', is_regex: true, is_equal: false })).toBe('a!~"b\\""');
  });
});

describe('back-tests', () => {
  const none: Backtest = {
    series: [],
    series_total: 0,
    threshold: [],
    firings: [],
    pending: [],
    gaps: [],
    gaps_reason: null,
    total_seconds: 0,
    step_seconds: 60,
  };
  const span = { labels: {}, from: 0, to: 1 };

  test('are told in words', () => {
    expect(backtestText(none)).toBe('would not have fired');
    expect(backtestText({ ...none, pending: [span] })).toBe('would not have fired; pending 1 time');
    expect(backtestText({ ...none, firings: [span], total_seconds: 90 })).toBe(
      'would have fired once, 1 min in all',
    );
    expect(backtestText({ ...none, firings: [span, span, span], total_seconds: 15_120 })).toBe(
      'would have fired 3 times, 4 h 12 min in all',
    );
  });

  test('a line breaks where nothing is, and a constant has room around it', () => {
    const same = (v: number) => v;
    expect(
      pathOf(
        [
          [0, 1],
          [1, 2],
          [9, 3],
          [10, null],
          [11, 4],
        ],
        3,
        same,
        same,
      ),
    ).toBe('M0.0 1.0L1.0 2.0M9.0 3.0M11.0 4.0');
    expect(boundsOf([])).toEqual([0, 1]);
    expect(boundsOf([0])).toEqual([-1, 1]);
    expect(boundsOf([Number.NaN, 2])[0]).toBeCloseTo(1.9);
    expect(testedRange('14d', NOW)).toEqual({ from: NOW - 14 * 86_400_000, to: NOW, seconds: 1680 });
  });
});

test('a rule that is edited keeps its labels, its annotations and its group', () => {
  const yaml = alertYaml({
    group: 'gpu',
    name: HOSTILE,
    expr: 'a\n  > 1',
    held: '5m',
    kept: '',
    labels: { severity: 'page', 'odd key': 'x' },
    annotations: {},
  });
  expect(yaml).toBe(
    `groups:\n  - name: "gpu"\n    rules:\n      - alert: ${JSON.stringify(HOSTILE)}\n        expr: |-\n          a\n            > 1\n        for: 5m\n        labels:\n          severity: "page"\n          "odd key": "x"\n`,
  );
});

describe('what waits', () => {
  const settled = () => new Promise((done) => setImmediate(done));
  const later = async (ms: number) => {
    vi.advanceTimersByTime(ms);
    await settled();
    await settled();
  };
  const clock = () =>
    vi.useFakeTimers({
      toFake: ['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout', 'Date', 'performance'],
    });

  test('is asked for after the page, and now and then; a refusal is the end of that question', async () => {
    clock();
    const asked: string[] = [];
    let tell = (_: string) => {};
    vi.stubGlobal('fetch', async (path: string) => {
      if (path.includes('/stream')) {
        const body = new ReadableStream<Uint8Array>({
          start: (to) => {
            tell = (event) => to.enqueue(new TextEncoder().encode(`event: ${event}\ndata: {}\n\n`));
          },
        });
        expect(path).toContain('topics=alerts');
        return new Response(body);
      }
      asked.push(path.replace('/api/tg/v1/', '').replace('?brief=true', ''));
      return path.includes('alerts') ? Response.json({ firing: 2 }) : new Response('', { status: 403 });
    });
    const stop = watchDuty();
    expect(asked).toEqual([]);
    await later(1000);
    expect([firing.value, waiting.value]).toEqual([2, null]);
    await later(60_000);
    expect(asked).toEqual(['alerts/summary', 'remediation', 'alerts/summary']);
    // News are asked for at once.
    tell('alerts');
    await later(1);
    await later(5000);
    expect(asked).toHaveLength(4);
    // A page that has read it spares the bar the question.
    await later(40_000);
    tellDuty(firing, 7);
    tell('alerts');
    await later(1);
    await later(20_000);
    expect([firing.value, asked.length]).toEqual([7, 4]);
    stop();
    await later(180_000);
    expect(asked).toHaveLength(4);
  });

  test('an answer that is none leaves no number behind', async () => {
    clock();
    vi.stubGlobal('fetch', async () => Response.json({ firing: HOSTILE, waiting: [3] }));
    const stop = watchDuty();
    await later(60_000);
    expect([firing.value, waiting.value]).toEqual([null, null]);
    stop();
  });
});
