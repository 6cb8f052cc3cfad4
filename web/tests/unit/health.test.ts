import { describe, expect, test } from 'vitest';
import type { Silence } from '../../src/alerts/answers';
import { Board } from '../../src/charts/board';
import type { Health } from '../../src/health/answers';
import { lowestFirst } from '../../src/health/evidence';
import { alertOf, bandsOn, bandText, type Firing, tellsOf } from '../../src/health/firings';
import { watchedText } from '../../src/health/overview';
import { onsetsOn, ordered, standingText } from '../../src/health/words';
import type { RunDetail } from '../../src/lib/answers';
import { priceText } from '../../src/money/panel';
import { formatUsd, percent, quantity } from '../../src/money/quantity';
import { holding, mutedBy } from '../../src/ranks/mute';
import { claimText, numbersOf } from '../../src/ranks/verdict_card';
import { verdictOf } from '../stories/health';

const THIN = '\u2009';

describe('verdicts', () => {
  test('the worst leads, and of equals the one that costs most', () => {
    const all = [
      verdictOf({ id: 'a', level: 'info' }),
      verdictOf({ id: 'b', level: 'warn', gain_ratio: 0.1 }),
      verdictOf({ id: 'c', level: 'page', gain_ratio: null }),
      verdictOf({ id: 'd', level: 'warn', gain_ratio: 0.2 }),
    ];
    expect(ordered(all).map((v) => v.id)).toEqual(['c', 'd', 'b', 'a']);
  });

  test('a level that a newer server has comes last, not first', () => {
    const odd = verdictOf({ id: 'x', level: 'grave' as 'info' });
    expect(ordered([odd, verdictOf({ id: 'y', level: 'info' })]).map((v) => v.id)).toEqual(['y', 'x']);
  });

  test('how sure it is leaves out what is not known', () => {
    expect(standingText(verdictOf({ z: 49.94, windows: { held: 4, of: 4 } }))).toBe(
      'z 49.9 · held 4 of 4 windows',
    );
    expect(standingText(verdictOf({}))).toBe('');
  });

  test('in a standstill the lowest sequence comes first, and a rank that told none before all', () => {
    const at = (rank: number, sequence: number | null, last_step: number | null = 10) => ({
      rank,
      sequence,
      last_step,
      last_step_time: null,
      completed: null,
      state: '',
    });
    const rows = lowestFirst([at(1, 1204), at(0, 1204), at(42, 1203), at(7, null), at(3, 1204, 9)]);
    expect(rows.map((c) => c.rank)).toEqual([7, 42, 3, 0, 1]);
  });
});

describe('muting a verdict', () => {
  test('it silences the alerts of its ranks in this run, and nothing else', () => {
    const two = mutedBy('r1', verdictOf({ class: 'node', ranks: [8, 9] }));
    expect(two?.map((m) => [m.name, m.value, m.is_regex])).toEqual([
      ['alertname', 'Straggler(Page|Warn)', true],
      ['run_id', 'r1', false],
      ['rank', '8|9', true],
    ]);
    expect(mutedBy('r1', verdictOf({ class: 'hang' }))?.map((m) => m.name)).toEqual(['alertname', 'run_id']);
    expect(mutedBy('r1', verdictOf({ class: 'rotating' }))).toBeNull();
  });

  test('it is muted while a silence of exactly that holds', () => {
    const matchers = mutedBy('r1', verdictOf({}))!;
    const silence = { id: 's', matchers: matchers.toReversed(), starts_at: 10, ends_at: 20 } as Silence;
    expect(holding([silence], matchers, 10)?.id).toBe('s');
    expect(holding([silence], matchers, 20)).toBeNull();
    expect(holding([silence], mutedBy('r2', verdictOf({}))!, 10)).toBeNull();
  });
});

describe('alerts of a run', () => {
  const MINUTE = 60_000;
  const firing = (rule: string, start: number, end: number | null, more: Partial<Firing> = {}): Firing => ({
    rule,
    labels: {},
    severity: 'page',
    pending_since: null,
    start,
    end,
    fingerprint: `${rule} ${start}`,
    ...more,
  });
  const slow = verdictOf({
    id: 'v',
    class: 'straggler',
    ranks: [17],
    onset: { step: null, time: 10 * MINUTE },
    since: 11 * MINUTE,
    cleared: null,
  });

  test('one tells of a verdict by its rule, its rank and its time', () => {
    const told = (rule: string, start: number, end: number | null, rank?: string) =>
      tellsOf(firing(rule, start, end, { labels: rank ? { rank } : {} }), slow);
    expect(told('StragglerPage', 12 * MINUTE, null, '17')).toBe(true);
    expect(told('StragglerPage', 12 * MINUTE, null)).toBe(true);
    expect(told('StragglerPage', 12 * MINUTE, null, '3')).toBe(false);
    expect(told('StragglerPager', 12 * MINUTE, null, '17')).toBe(false);
    expect(told('StragglerPage', MINUTE, 9 * MINUTE, '17')).toBe(false);
  });

  test('those that no verdict accounts for are bands, and those that meet are one', () => {
    const board = new Board('r');
    board.health.value = { verdicts: [slow], history: [] } as unknown as Health;
    board.firings.value = [
      firing('StragglerPage', 12 * MINUTE, null, { labels: { rank: '17' } }),
      firing('KvFull', 20 * MINUTE, null, { severity: 'ticket', pending_since: 15 * MINUTE }),
      firing('LossNotFinite', 3 * MINUTE, 4 * MINUTE),
      firing('RunStalled', 2 * MINUTE, 5 * MINUTE, { severity: 'ticket' }),
    ];
    expect(alertOf(board, 'v')?.rule).toBe('StragglerPage');
    const bands = bandsOn(board, 'time', MINUTE);
    expect(
      bands.map((b) => [bandText(b), b.level, b.from / MINUTE, b.fired / MINUTE, b.to && b.to / MINUTE]),
    ).toEqual([
      ['2 alerts', 'page', 2, 2, 5],
      ['KvFull', 'warn', 15, 20, null],
    ]);
    expect(bandsOn(board, 'step', 1)).toEqual([]);
  });
});

describe('an onset on an axis', () => {
  const health = (verdicts: Health['verdicts'], history: Health['history'] = []) =>
    ({ verdicts, history }) as unknown as Health;
  const boardWith = (told: Health) => {
    const board = new Board('r');
    board.health.value = told;
    board.detail.value = { started_ms: 1_000_000 } as RunDetail;
    return board;
  };

  test('is its step on steps, its time on time, and seconds on relative time', () => {
    const verdict = verdictOf({ onset: { step: 4120, time: 1_060_000 }, since: 1_080_000 });
    const board = boardWith(health([verdict]));
    expect(onsetsOn(board, 'step').map((o) => o.x)).toEqual([4120]);
    expect(onsetsOn(board, 'time')).toMatchObject([{ x: 1_060_000, found: 1_080_000, end: null }]);
    expect(onsetsOn(board, 'relative')).toMatchObject([{ x: 60, found: 80 }]);
    board.end();
  });

  test('without a step stands nowhere on steps until the run tells how times and steps belong together', () => {
    const board = boardWith(health([verdictOf({ onset: { step: null, time: 1_060_000 } })]));
    expect(onsetsOn(board, 'step')).toEqual([]);
    board.end();
  });

  test('is drawn above those that are less bad, and not at all where nothing is to be done', () => {
    const at = { step: 1, time: 1 };
    const board = boardWith(
      health(
        [
          verdictOf({ id: 'p', level: 'page', onset: at }),
          verdictOf({ id: 'i', level: 'info', onset: at }),
          verdictOf({ id: 'w', level: 'warn', onset: at }),
        ],
        [verdictOf({ id: 'old', level: 'warn', onset: at, since: 2, cleared: 9 })],
      ),
    );
    expect(
      onsetsOn(board, 'time')
        .map((o) => o.id)
        .at(-1),
    ).toBe('p');
    expect(onsetsOn(board, 'time').map((o) => o.id)).not.toContain('i');
    expect(onsetsOn(board, 'time').find((o) => o.id === 'old')?.end).toBe(9);
    board.end();
  });
});

describe('how a run is watched', () => {
  const told = (more: Partial<Health>) =>
    watchedText({
      state: 'ok',
      reason: null,
      watched: { ranks: 64, of: 64, window_steps: 20, last_step: 6263, since: null },
      ...more,
    } as Health);

  test('says what it stands on, never a bare tick', () => {
    expect(told({})).toBe('Nothing is wrong: 64 of 64 ranks watched over 20 steps, last at step 6,263.');
    expect(told({ state: 'unknown', reason: 'one rank only' })).toBe('one rank only');
    expect(told({ state: 'page' })).toBe('64 of 64 ranks watched over 20 steps, last at step 6,263.');
    expect(told({ watched: null })).toBe('Nothing is wrong.');
  });
});

describe('numbers in their unit', () => {
  test.each([
    [378.04, 'usd', `$${THIN}378.04`],
    [1378.4, 'usd', `$${THIN}1,378`],
    [0.0949, 'usd_per_mtok', `$${THIN}0.095 / Mtok`],
    [-3, 'usd', `\u2212$${THIN}3.00`],
    [27.4, 'usd_per_hour', `$${THIN}27.40 / h`],
    [0.3114, 'ratio', `31.1${THIN}%`],
    [0, 'ratio', `0${THIN}%`],
    [1.4, 'seconds', `1.400${THIN}s`],
    [11_135, 'seconds', '3 h 05 min'],
    [1404e6, 'hertz', `1.404${THIN}GHz`],
    [Number.NaN, 'ratio', 'NaN'],
  ])('%s %s', (value, unit, text) => {
    expect(quantity(value, unit)).toBe(text);
  });

  test('cents where cents matter', () => {
    expect(formatUsd(0)).toBe(`$${THIN}0.00`);
    expect(formatUsd(0.28623)).toBe(`$${THIN}0.29`);
    expect(formatUsd(Infinity)).toBe('+Inf');
    expect(percent(-0.05)).toBe(`\u22125${THIN}%`);
  });

  test('a price names its card and revision', () => {
    expect(priceText({ usd_per_gpu_hour: 2.5, gpu_model: 'H100', revision: '14' })).toBe(
      `$${THIN}2.50 / GPU h, H100, revision 14`,
    );
    expect(priceText(null)).toBe('no price is known');
  });
});

describe('the card of the Ranks tab', () => {
  test('names the cause once', () => {
    expect(claimText(verdictOf({ claim: 'Rank 17 is slow.', cause: 'thermal' }))).toBe(
      'Rank 17 is slow: thermal',
    );
    expect(claimText(verdictOf({ claim: 'Thermal: rank 3', cause: 'thermal' }))).toBe('Thermal: rank 3');
    expect(claimText(verdictOf({ claim: 'Odd', cause: 'cosmic_rays' }))).toBe('Odd: cosmic rays');
    expect(claimText(verdictOf({ claim: 'Plain' }))).toBe('Plain');
  });

  test('has six numbers at most and does not say one twice', () => {
    const row = (name: string, value: number | null = 1) => ({
      text: name,
      name,
      value,
      peers: null,
      unit: 'ratio',
      metric: null,
    });
    const evidence = ['own', 'wait', 'a', 'b', 'c', 'd'].map((name) => row(name));
    const rows = numbersOf(
      verdictOf({ rho: 1.25, z: 50, wait_seconds: 0.1, peers_wait_seconds: 0.4, evidence }),
    );
    expect(rows.map((r) => r.text)).toEqual([
      'Own step time ÷ peers, ρ',
      'Distance, z',
      'Waited in collectives',
      'A',
      'B',
      'C',
    ]);
    expect(rows[2]).toMatchObject({ value: '0.100 s', beside: 'peers 0.400 s', out: true });
    expect(numbersOf(verdictOf({ evidence: [row('own'), row('x', null)] })).map((r) => r.text)).toEqual([
      'Own step time',
    ]);
  });
});
