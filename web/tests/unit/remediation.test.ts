/** The Remediation page's pure parts: the way of a host, guards, money of an act, the audit as a file. */
import { describe, expect, test } from 'vitest';
import type { Act, Edge, Host, Pool, RemediationAnswer } from '../../src/remediation/answers';
import { found, nothingText } from '../../src/remediation/asked';
import {
  actTitle,
  auditCsv,
  checkpointText,
  columnsOf,
  edgeText,
  expiryText,
  gainText,
  interruptsText,
  lostText,
  poolText,
  realProblem,
  stationsOf,
} from '../../src/remediation/words';

const NOW = Date.UTC(2026, 10, 30, 11, 34);
const HOUR = 3_600_000;

const host = (more: Partial<Host> = {}): Host => ({
  host: 'h1',
  pool: 'train',
  state: 'healthy',
  since: 1,
  gpu: '',
  uuid: '',
  incident: '',
  reason: '',
  resets_24h: 0,
  dry_run: false,
  ...more,
});

const edge = (time: number, from: string, to: string, more: Partial<Edge> = {}): Edge => ({
  time,
  host: 'h1',
  gpu: '',
  from,
  to,
  text: '',
  actor: 'policy',
  dry_run: false,
  evidence: [],
  id: null,
  commands: [],
  ...more,
});

const act = (more: Partial<Act> = {}): Act => ({
  id: 'a',
  key: 'k',
  host: 'host-3',
  gpu: '1',
  uuid: '',
  pool: 'train',
  incident: '',
  verdict: 'straggler',
  title: 't',
  text: '',
  evidence: [],
  affects: [],
  checkpoint: null,
  lost: { steps: null, seconds: null, usd: null, reason: null },
  confirm: 'host-3',
  gain_ratio: null,
  spare: null,
  guards: [],
  commands: [],
  asked: NOW,
  expires: null,
  mode: 'approve',
  status: 'queued',
  outcome: '',
  step: 1,
  ...more,
});

const way = (of: Host, edges: Edge[]) => stationsOf(of, edges).map((s) => `${s.state} ${s.is}`);

describe('the way of a host', () => {
  test('goes from healthy to healthy; what lies behind was passed, what it left before counts no more', () => {
    expect(way(host(), [])[0]).toBe('healthy here');
    const edges = [
      edge(1, 'healthy', 'suspect'),
      edge(2, 'suspect', 'cordoned'),
      edge(3, 'cordoned', 'healthy'),
      edge(4, 'healthy', 'suspect', { dry_run: true }),
      edge(5, 'healthy', 'suspect', { host: 'other' }),
    ];
    const stations = stationsOf(host({ state: 'suspect', since: 4 }), edges);
    expect(stations.map((s) => s.is)).toEqual([
      'passed',
      'here',
      'ahead',
      'ahead',
      'ahead',
      'ahead',
      'ahead',
    ]);
    expect(stations[1].since).toBe(4);
  });

  test('a skipped station was not passed, a reboot is put in, and a person ends it', () => {
    const edges = [
      edge(1, 'healthy', 'suspect'),
      edge(2, 'suspect', 'draining'),
      edge(3, 'draining', 'rebooting'),
    ];
    expect(way(host({ state: 'rebooting', since: 3 }), edges)).toEqual([
      'healthy passed',
      'suspect passed',
      'cordoned ahead',
      'draining passed',
      'resetting ahead',
      'rebooting here',
      'validating ahead',
      'healthy ahead',
    ]);
    const human = way(host({ state: 'needs_human' }), [edge(1, 'healthy', 'suspect')]);
    expect(human.at(-1)).toBe('needs_human here');
    expect(human.filter((s) => s.endsWith('passed'))).toEqual(['healthy passed', 'suspect passed']);
  });

  test('hosts stand by state in the order of states, and one that is not known comes last', () => {
    const hosts = [
      host({ since: 1 }),
      host({ host: 'h2', since: 2 }),
      host({ host: 'h3', state: 'odd' as never, pool: 'b' }),
    ];
    const columns = columnsOf(hosts, '');
    expect(columns[0].hosts.map((h) => h.host)).toEqual(['h2', 'h1']);
    expect(columns.at(-1)).toMatchObject({ state: 'odd' });
    expect(columnsOf(hosts, 'b').flatMap((c) => c.hosts)).toHaveLength(1);
  });
});

describe('an act', () => {
  test('runs for real only with its host’s name, the mode, and no guard against it', () => {
    const no = act({ guards: [{ name: 'b', ok: false, text: 'budget is spent', hard: true }] });
    const unknown = act({ guards: [{ name: 'b', ok: null, text: 'no memory temp.', hard: false }] });
    expect(realProblem(act(), 'real', 'host-3')).toBe('');
    expect(realProblem(unknown, 'real', 'host-3')).toBe('');
    const blind = act({ guards: [{ name: 'd', ok: null, text: 'drain not known', hard: true }] });
    expect(realProblem(blind, 'real', 'host-3')).toContain('drain not known');
    expect(realProblem(act(), 'real', 'host-')).toContain('Type host-3');
    expect(realProblem(act(), 'real', ' host-3')).not.toBe('');
    expect(realProblem(no, 'real', 'host-3')).toContain('budget is spent');
    expect(realProblem(act(), 'dry_run', 'host-3')).toContain('dry run');
    expect(realProblem(act(), 'off', 'host-3')).toContain('off');
    // Only a run says that it is there.
    const unconfirmed = act({ confirm: 'host-3 unconfirmed' });
    expect(realProblem(unconfirmed, 'real', 'host-3')).toContain('Type host-3 unconfirmed');
    expect(realProblem(unconfirmed, 'real', 'host-3 unconfirmed')).toBe('');
  });

  test('says what it costs, and what nobody knows', () => {
    expect(checkpointText(act())).toBeNull();
    expect(checkpointText(act({ checkpoint: { step: 6000, age_seconds: 360, steps_lost: 263 } }))).toEqual({
      step: 'step 6,000',
      age: '6 min old',
      lost: '263 steps would be repeated',
    });
    expect(
      checkpointText(act({ checkpoint: { step: 1, age_seconds: null, steps_lost: null } }))!.lost,
    ).toContain('not known');
    const lost = { steps: 120, seconds: 900, usd: 9, reason: null };
    expect(lostText(act({ lost }))).toEqual({ known: '15 min, $9.00', missing: '' });
    const free = { ...lost, usd: null, reason: 'no price is known' };
    expect(lostText(act({ lost: free }))).toEqual({ known: '15 min', missing: 'no price is known' });
    expect(lostText(act())).toEqual({ known: '', missing: '' });
    expect(gainText(act({ gain_ratio: 0.171 }))).toBe('17.1\u2009% of step time');
    expect(gainText(act({ gain_ratio: 0.1 }))).toBe('10\u2009% of step time');
    expect(gainText(act())).toBeNull();
    expect(actTitle(act({ title: 'Xid 79' }))).toBe('host-3 · GPU 1: Xid 79');
    expect(actTitle(act({ title: 'Drain host-3?', gpu: '' }))).toBe('Drain host-3?');
    expect(interruptsText(act())).toBe('interrupts no run');
    const job = { run_id: null, run: 'j', gpus: 1, attempt: 1, dead: false };
    expect(interruptsText(act({ affects: [job] }))).toBe('interrupts 1 job');
    expect(interruptsText(act({ affects: [{ ...job, dead: true }] }))).toBe('interrupts no run');
    expect(expiryText(act({ expires: NOW + HOUR }), NOW)).toBe(
      'Expires in 1 h 00 min, then nothing happens.',
    );
    expect(expiryText(act({ expires: NOW }), NOW)).toContain('Expired');
  });
});

test('a pool says its budget, its breaker and how many broke at once', () => {
  const pool: Pool = {
    pool: 'train',
    nodes: 40,
    in_remediation: 1,
    budget: 2,
    breaker: 'open',
    newly_bad_ratio: 0.3,
    quiet: true,
  };
  expect(poolText(pool)).toBe('1 of 2 in remediation, breaker open, 30\u2009% newly bad, in a quiet window');
  expect(poolText({ ...pool, newly_bad_ratio: null, quiet: false })).toContain('newly bad unknown');
});

describe('the audit', () => {
  test('an edge is two states, or its text where it is none', () => {
    expect(edgeText(edge(1, 'draining', 'needs_human'))).toBe('draining → needs human');
    expect(edgeText(edge(1, 'suspect', 'suspect', { text: 'waits for approval' }))).toBe(
      'waits for approval',
    );
  });

  test('leaves as CSV whole, without a formula for a table program', () => {
    const text = auditCsv([
      edge(NOW, 'a', 'b', {
        text: '=cmd|"x"',
        evidence: ['i-1'],
        commands: ['kubectl drain h'],
        actor: 'a,b\n',
        dry_run: true,
      }),
    ]);
    const [head, ...rest] = text.split('\n');
    expect(head).toContain('"time","host"');
    expect(rest.join('\n')).toContain('"\'=cmd|""x"""');
    expect(rest.join('\n')).toContain('"dry run"');
    expect(rest.join('\n')).toContain('kubectl drain h');
  });
});

describe('what exists for a verdict that leads here', () => {
  const question = { host: 'h1', uuid: 'GPU-1', verdict: 'v-1' };
  const answer = (more: Partial<RemediationAnswer> = {}): RemediationAnswer => ({
    mode: 'dry_run',
    reason: null,
    policy: { name: 'fleet', revision: 3, file: 'f' },
    pools: [],
    hosts: [],
    waiting: 0,
    queue: [],
    executing: [],
    audit: [],
    ...more,
  });

  test('its own act comes before one of its card, and that before one of its host', () => {
    const of = (id: string, more: Partial<Act>) => act({ id, host: 'h1', uuid: '', verdict: '', ...more });
    const host = of('host', {});
    const card = of('card', { uuid: 'GPU-1' });
    const verdict = of('verdict', { host: 'other', verdict: 'v-1' });
    const first = (queue: Act[]) => found(question, answer({ queue })).waits?.id;
    expect(first([host, card, verdict])).toBe('verdict');
    expect(first([host, card])).toBe('card');
    expect(first([host])).toBe('host');
    expect(first([of('else', { host: 'h2', uuid: 'GPU-1' })])).toBeUndefined();
    expect(found(question, answer({ executing: [card] })).runs?.id).toBe('card');
  });

  test('the last edge of the host is told, of no other', () => {
    const audit = [
      edge(1, 'healthy', 'suspect'),
      edge(3, 'suspect', 'cordoned'),
      edge(9, 'a', 'b', { host: 'h2' }),
    ];
    expect(found(question, answer({ audit })).last?.time).toBe(3);
    expect(found(question, answer()).last).toBeNull();
  });

  test('where nothing exists it says why', () => {
    expect(nothingText(question, answer({ mode: 'off' }))).toContain('Remediation is off');
    expect(nothingText(question, answer({ policy: null }))).toContain('No policy');
    expect(nothingText(question, answer())).toContain('in no pool');
    expect(nothingText(question, answer({ hosts: [host()] }))).toBe(
      'Policy `fleet`, revision 3, has proposed nothing for it.',
    );
  });
});
