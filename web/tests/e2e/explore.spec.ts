/** Explore: queries of the real engine over what was pushed. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { expect, test } from './fixture';
import { curve, Writer } from './push';
import { program, type RealServer } from './server';
import { fits } from './width';

test.use({ world: 'explore' });

const HOSTILE = '<img src=x onerror=alert(1)>\u202e';
const MANY = 60;

test.beforeAll(async ({ server }) => {
  const now = Date.now();
  const writer = new Writer(server.url);
  const untimed = (points: { ms: number; value: number }[]) => points.map(({ ms, value }) => ({ ms, value }));
  await writer.push({
    organization: 'acme',
    project: 'llm',
    run: 'explored',
    event: 1,
    timeMs: now - 3_600_000,
    series: [
      { name: 'loss', points: curve(1800, now, (s) => 2 + 8 * Math.exp(-s / 400)) },
      ...[0, 1, 2, 3, 4, 5].map((gpu) => ({
        name: 'throttled_seconds_total',
        labels: { host: `host-${gpu + 1}`, gpu: `${gpu}` },
        points: untimed(curve(3000, now, (s) => s * (0.05 + gpu / 20) + 9 * Math.sin(s / 90 + gpu))),
      })),
      {
        name: 'system/cpu/utilization',
        labels: { host: 'host-1' },
        points: untimed(
          curve(900, now - 2_000_000, (s) => 30 + 4 * Math.sin(s / 60)).concat(
            curve(900, now, (s) => 60 + 5 * Math.cos(s / 40)),
          ),
        ),
      },
      {
        name: 'ended',
        labels: { part: HOSTILE },
        points: untimed(curve(300, now - 1_500_000, () => 7)),
      },
      ...Array.from({ length: MANY }, (_, shard) => ({
        name: 'many',
        labels: { shard: `${shard}` },
        points: untimed(curve(30, now, () => shard)),
      })),
    ],
  });
});

const box = (page: Page, letter = 'A') => page.getByRole('textbox', { name: `Query ${letter}` });
const chart = (page: Page, letter = 'A') => page.locator(`[data-query="${letter}"]`);
const words = (page: Page, letter = 'A') => chart(page, letter).locator('.plot');
const rows = (page: Page) => page.getByRole('region', { name: 'Table of series' }).locator('tbody tr');

async function openWith(page: Page, server: RealServer, query: Record<string, string> | string[][]) {
  await page.goto(`${server.url}/explore?${new URLSearchParams(query as Record<string, string>)}`);
}

test('examples have data here, and a click runs one', async ({ page, server }) => {
  await page.goto(`${server.url}/runs`);
  await page.getByRole('link', { name: 'Explore', exact: true }).click();
  const examples = page.getByRole('region', { name: 'Examples' }).getByRole('button');
  await expect(examples).toHaveCount(6);
  for (const query of await examples.allTextContents()) {
    const [start, end] = [Date.now() / 1000 - 3600, Date.now() / 1000].map(String);
    const asked = new URLSearchParams({ query, start, end, step: '15' });
    const answer = await fetch(`${server.url}/api/v1/query_range?${asked}`);
    const { data } = (await answer.json()) as { data: { result: unknown[] } };
    expect(data.result.length, query).toBeGreaterThan(0);
  }
  await examples.first().click();
  await expect(page).toHaveURL(/q=loss/);
  await expect(chart(page).locator('canvas')).toBeVisible();
  await expect(page.getByText(/1 series · [\d,]+ samples read · [\d.]+ ms/)).toBeVisible();
});

test('queries are typed with completion, run by a key, and live in the address', async ({ page, server }) => {
  await page.goto(`${server.url}/explore`);
  await expect(page.getByRole('region', { name: 'What costs series' })).toContainText('many');
  await page.keyboard.press('/');
  await page.keyboard.type('max by (host) (rate(thr');
  await page.getByRole('option', { name: /throttled_seconds_total/ }).waitFor();
  await page.keyboard.press('Enter');
  await page.keyboard.type('{ho');
  await page.getByRole('option', { name: 'host' }).first().waitFor();
  await page.keyboard.press('Tab');
  await page.keyboard.type('=~"host-1');
  await page.keyboard.type('|host-2"}[5m]))');
  await expect(box(page)).toHaveValue(
    'max by (host) (rate(throttled_seconds_total{host=~"host-1|host-2"}[5m]))',
  );
  await page.keyboard.press('Control+Enter');
  await expect(words(page)).toHaveAttribute('aria-label', /Query A.*2 of 2 series/);
  await expect(rows(page)).toHaveCount(2);
  await page.getByRole('button', { name: '+ query' }).click();
  await box(page, 'B').fill('avg(system_cpu_utilization)');
  await expect(page.getByText('not run yet')).toBeVisible();
  await page.keyboard.press('Control+Enter');
  await expect(words(page, 'B')).toHaveAttribute('aria-label', /Query B, %/);
  await expect(rows(page)).toHaveCount(3);
  await page.reload();
  await expect(box(page, 'B')).toHaveValue('avg(system_cpu_utilization)');
  await expect(rows(page)).toHaveCount(3);
  await page.goBack();
  await expect(chart(page, 'B')).toHaveCount(0);
  await expect(rows(page)).toHaveCount(2);
});

test('a mistake has a place and keeps the rest of the page', async ({ page, server }) => {
  await openWith(page, server, [
    ['q', 'sum(löss{'],
    ['q', 'loss'],
  ]);
  const error = page.getByRole('alert');
  await expect(error).toContainText('parse error');
  await expect(error).toContainText(/line 1, column \d+/);
  await expect(page.locator('.box').first().locator('.wrong')).toHaveCount(1);
  await expect(box(page)).toHaveAttribute('aria-invalid', 'true');
  await expect(words(page, 'B')).toHaveAttribute('aria-label', /lowest/);
  await box(page).fill('loss');
  await expect(error).toHaveCount(0);
});

test('a live page asks again, but not what was refused', async ({ page, server }) => {
  await page.clock.install();
  const asked: string[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/query_range'))
      asked.push(new URLSearchParams(request.postData() ?? '').get('query') ?? '');
  });
  await openWith(page, server, [
    ['q', 'loss'],
    ['q', 'sum('],
  ]);
  await expect(page.getByRole('alert')).toBeVisible();
  await expect(rows(page)).toHaveCount(1);
  // The clock of the page runs on meanwhile: on a busy machine it asks more than once.
  const first = asked.length;
  await page.clock.runFor(12_000);
  await expect.poll(() => asked.length).toBeGreaterThan(first);
  await page.getByRole('button', { name: 'live' }).click();
  await expect(page).toHaveURL(/live=0/);
  const last = asked.length;
  await page.clock.runFor(30_000);
  expect(asked.length).toBe(last);
  expect(asked.filter((query) => query !== 'loss')).toEqual(['sum(']);
});

test('gaps are gaps, and what has ended says so', async ({ page, server }) => {
  await openWith(page, server, [
    ['q', 'system_cpu_utilization'],
    ['q', 'last_over_time(ended[20s])'],
    ['step', '15s'],
  ]);
  await expect(words(page)).toHaveAttribute('aria-label', /1 gaps/);
  const ended = rows(page).filter({ hasText: 'ended' });
  await expect(ended).toContainText('absent');
  await expect(ended).toContainText(/0\.\d\d/);
  // A name from outside is text, and its hidden characters are seen.
  await expect(page.locator('.series-table')).toContainText('<img src=x onerror=alert(1)>\\u202e');
  await expect(page.locator('main img')).toHaveCount(0);
});

test('more series than a chart draws are counted', async ({ page, server }) => {
  await openWith(page, server, { q: 'many' });
  await expect(chart(page).getByText(`20 of ${MANY} shown`)).toBeVisible();
  await expect(chart(page).locator('.legend button')).toHaveCount(20);
  await expect(rows(page)).toHaveCount(MANY);
  await expect(rows(page).first()).toContainText('59');
});

test('an answer that the server cut says how many there are', async ({ page, server }) => {
  await page.route('**/api/v1/query_range', async (route) => {
    const form = new URLSearchParams(route.request().postData() ?? '');
    form.set('limit', '50');
    await route.continue({ postData: form.toString() });
  });
  await openWith(page, server, { q: 'many' });
  await expect(rows(page)).toHaveCount(50);
  await expect(chart(page).getByText(`20 of ${MANY} shown, of the first 50`)).toBeVisible();
  await expect(page.getByText(`50 of ${MANY} series.`)).toBeVisible();
  await expect(chart(page).getByText(/warning/)).toHaveCount(0);
});

test('the engine is heard: warnings and infos are badges', async ({ page, server }) => {
  await openWith(page, server, { q: 'rate(loss[5m]) + quantile(2, loss)' });
  await chart(page)
    .getByText(/1 warning/)
    .click();
  await expect(chart(page)).toContainText(/quantile value should be between 0 and 1/);
  await expect(chart(page).getByText(/1 info/)).toBeVisible();
});

test('the metric is described beside its query, with what it costs', async ({ page, server }) => {
  await openWith(page, server, { q: 'avg(system_cpu_utilization)' });
  const about = page.getByRole('region', { name: 'Metric system_cpu_utilization' });
  await expect(about).toContainText('%');
  await expect(about).toContainText('gauge');
  await expect(about).toContainText('CPU time');
  await expect(about).toContainText('How it misleads.');
  await expect(about.getByText('host', { exact: true })).toBeVisible();
});

test('a choice says what it is and what it costs, values and durations follow their place', async ({
  page,
  server,
}) => {
  await page.goto(`${server.url}/explore`);
  await box(page).focus();
  await page.keyboard.type('rate(system_cpu');
  const option = page.getByRole('option', { name: /system_cpu_utilization/ });
  await expect(option).toContainText('%');
  await expect(page.locator('.completion .help')).toContainText('How it misleads.');
  await page.keyboard.press('Tab');
  await page.keyboard.type('{host="');
  await page.getByRole('option', { name: 'host-1' }).waitFor();
  await page.keyboard.press('Enter');
  await expect(box(page)).toHaveValue('rate(system_cpu_utilization{host="host-1"');
  await page.keyboard.type('}[');
  await page.getByRole('option', { name: '5m', exact: true }).waitFor();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.keyboard.type('])');
  await expect(box(page)).toHaveValue('rate(system_cpu_utilization{host="host-1"}[5m])');
  await expect(page.getByRole('option')).toHaveCount(0);
  await page.keyboard.type(' ');
  await page.keyboard.press('Control+Space');
  await page.getByRole('option', { name: 'offset' }).waitFor();
});

test('a question that the next key makes idle is called off', async ({ page, server }) => {
  const failed: string[] = [];
  page.on('requestfailed', (request) => {
    const url = new URL(request.url());
    if (url.pathname.endsWith('/complete')) failed.push(url.searchParams.get('query') ?? '');
  });
  await page.goto(`${server.url}/explore`);
  await page.route('**/api/tg/v1/complete?*', async (route) => {
    if (new URL(route.request().url()).searchParams.get('query') === 'thr') return; // never answered
    await route.continue();
  });
  await box(page).focus();
  await page.keyboard.type('thr');
  await page.waitForRequest(/complete\?query=thr&/);
  await page.keyboard.type('o');
  await page.getByRole('option', { name: /throttled_seconds_total/ }).waitFor();
  expect(failed).toContain('thr');
});

test('a rate of a gauge and a counter without one are told before running, and mended by a click', async ({
  page,
  server,
}) => {
  await openWith(page, server, { q: 'rate(system_cpu_utilization[5m])' });
  await expect(rows(page)).toHaveCount(1);
  const advice = page.locator('.advice');
  await expect(advice).toContainText('goes up and down');
  await advice.getByRole('button', { name: 'use deriv' }).click();
  await expect(page).toHaveURL(/q=deriv/);
  await expect(box(page)).toHaveValue('deriv(system_cpu_utilization[5m])');
  await expect(advice).toHaveCount(0);
  await box(page).fill('max by (host) (throttled_seconds_total)');
  await expect(advice).toContainText('only grows');
  await expect(page.getByText('not run yet')).toBeVisible();
  await advice.getByRole('button', { name: 'rate over 5m' }).click();
  await expect(box(page)).toHaveValue('max by (host) (rate(throttled_seconds_total[5m]))');
  await expect(page.getByText('not run yet')).toBeVisible();
});

test('a query becomes a rule that the checker accepts', async ({ page, server }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const check = async () => {
    const yaml = await page.evaluate(() => navigator.clipboard.readText());
    const directory = mkdtempSync(join(tmpdir(), 'truegauge-rule-'));
    try {
      const file = join(directory, 'rule.yml');
      writeFileSync(file, yaml);
      execFileSync(program(), ['rules', 'check', file], { stdio: 'pipe' });
    } finally {
      rmSync(directory, { recursive: true });
    }
    return yaml;
  };
  await openWith(page, server, { q: 'max by (host) (rate(throttled_seconds_total[5m])) > 0.02' });
  await expect(rows(page)).toHaveCount(6);
  await page.getByRole('button', { name: 'Make a rule' }).click();
  const dialog = page.getByRole('dialog', { name: 'Make a rule' });
  await expect(dialog).toContainText('alert: "ThrottledSeconds"');
  await clean(page);
  await dialog.getByRole('button', { name: 'Copy' }).click();
  expect(await check()).toContain('max by (host) (rate(throttled_seconds_total[5m])) > 0.02');
  await dialog.getByRole('button', { name: 'Recorded series' }).click();
  await dialog.getByRole('textbox', { name: 'Name' }).fill('1 bad');
  await expect(dialog.getByRole('alert')).toContainText('digit');
  await expect(dialog.getByRole('button', { name: 'Copy' })).toBeDisabled();
  await dialog.getByRole('textbox', { name: 'Name' }).fill('host:throttled:rate5m');
  await dialog.getByRole('button', { name: 'Copy' }).click();
  await expect.poll(check).toContain('record: "host:throttled:rate5m"');
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
});

test('one metric tells which of its labels cost, and refused labels are named', async ({ page, server }) => {
  const writer = new Writer(server.url);
  await writer.push({
    project: 'edge',
    run: 'refused',
    event: 1,
    series: [{ name: 'loss', labels: { request_id: '1' }, points: [{ ms: Date.now(), value: 1 }] }],
  });
  await openWith(page, server, { view: 'cardinality' });
  await expect(page.getByRole('region', { name: 'Refused labels' })).toContainText(
    /request_id refused 1 time from project edge/,
  );
  await expect(page.getByRole('region', { name: 'Bounds on series' })).toContainText('of 200,000');
  await expect(page.getByRole('region', { name: 'Series with a label', exact: true })).toContainText('shard');
  await page
    .getByRole('region', { name: 'Series of a metric', exact: true })
    .getByRole('button')
    .first()
    .click();
  await expect(page).toHaveURL(/metric=many/);
  const one = page.getByRole('region', { name: 'Cost of many' });
  await expect(one.getByRole('region', { name: 'Values of its labels', exact: true })).toContainText(
    `shard${MANY}`,
  );
  await one.getByRole('button', { name: 'Ask for it' }).click();
  await expect(rows(page)).toHaveCount(MANY);
});

test('range and step are chosen, zoomed and shared', async ({ page, server }) => {
  await openWith(page, server, { q: 'loss' });
  await expect(chart(page).getByText('step 5 s')).toBeVisible();
  await page.getByRole('button', { name: /Last 1 h/ }).click();
  await page.getByRole('menuitemcheckbox', { name: 'Last 15 min' }).click();
  await expect(page).toHaveURL(/from=-15m/);
  await expect(chart(page).getByText('step 2 s')).toBeVisible();
  await page.getByRole('button', { name: 'fixed' }).click();
  await page.getByRole('textbox', { name: 'Fixed step' }).fill('30s');
  await expect(chart(page).getByText('step 30 s')).toBeVisible();
  await expect(page).toHaveURL(/step=30s/);
  const area = (await chart(page).locator('.u-over').boundingBox())!;
  await page.mouse.move(area.x + area.width * 0.25, area.y + 60);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width * 0.75, area.y + 60, { steps: 5 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=\d+.*to=\d+/);
  await expect(page.getByRole('button', { name: /Fixed/ }).first()).toBeVisible();
  await page.keyboard.press('Escape');
  await chart(page).focus();
  await page.keyboard.press('0');
  await expect(page).toHaveURL(/from=-15m/);
  await page.keyboard.press('z');
  await expect(page).toHaveURL(/tz=local/);
  await page.keyboard.press('<');
  await expect(page).toHaveURL(/from=-30m/);
});

test('copied Python and PromQL, and files, are the same question', async ({ page, server }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await openWith(page, server, { q: 'loss{run="explored"}' });
  await expect(rows(page)).toHaveCount(1);
  await page.getByRole('button', { name: 'Copy as' }).click();
  await page.getByRole('menuitem', { name: 'Python' }).click();
  const python = await page.evaluate(() => navigator.clipboard.readText());
  expect(python).toContain('a = tg.query("loss{run=\\"explored\\"}", start=');
  expect(python).toContain(`SERVER = "${server.url}"`);
  const [csv] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'CSV' }).click(),
  ]);
  const lines = (await (await csv.createReadStream()).toArray()).join('').trim().split('\n');
  expect(lines[0]).toMatch(/^query,time,__name__,.*,value$/);
  expect(lines.length).toBeGreaterThan(100);
});

test('what costs series is listed, and a click asks for it', async ({ page, server }) => {
  await page.goto(`${server.url}/explore`);
  await expect(page.getByRole('heading', { name: 'Explore' })).toBeVisible();
  await page.keyboard.press(']');
  await page.keyboard.press(']');
  await expect(page).toHaveURL(/view=cardinality/);
  const metrics = page.getByRole('region', { name: 'Series of a metric', exact: true });
  await expect(metrics.getByRole('listitem').first()).toContainText(`many${MANY}`);
  await expect(page.getByRole('region', { name: 'Values of a label', exact: true })).toContainText('shard');
  await page.keyboard.press('[');
  await page.getByRole('searchbox', { name: 'Filter metrics' }).fill('cpu');
  await page.getByRole('button', { name: 'system_cpu_utilization' }).click();
  await expect(page).not.toHaveURL(/view=/);
  await expect(words(page)).toHaveAttribute('aria-label', /Query A, %/);
});

for (const theme of ['light', 'dark']) {
  test(`every view is clean for axe, ${theme}`, async ({ page, server }) => {
    await openWith(page, server, [
      ['q', 'max by (host, gpu) (rate(throttled_seconds_total[5m])) > 0.02'],
      ['q', 'system_cpu_utilization + '],
      ['theme', theme],
    ]);
    await expect(rows(page)).toHaveCount(6);
    await expect(page.getByRole('alert')).toBeVisible();
    await expect(page.getByRole('region', { name: 'Metric system_cpu_utilization' })).toContainText(
      /\d value/,
    );
    await clean(page);
    await box(page).fill('avg by (host) (thr');
    await box(page).press('End');
    await page.keyboard.type('o');
    await page.getByRole('option').first().waitFor();
    await clean(page);
    await page.keyboard.press('Escape');
    for (const view of ['metrics', 'cardinality']) {
      await openWith(page, server, { view, theme });
      await expect(page.getByRole('listitem').or(page.locator('tbody tr')).first()).toBeVisible();
      await clean(page);
    }
    await page.goto(`${server.url}/explore?theme=${theme}`);
    await expect(page.getByRole('region', { name: 'Examples' })).toBeVisible();
    await clean(page);
  });
}

test('a narrow window reflows into one column', async ({ page, server }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  for (const view of ['', 'metrics', 'cardinality']) {
    await openWith(page, server, {
      q: 'max by (host, gpu) (rate(throttled_seconds_total[5m])) > 0.02',
      view,
    });
    await expect(page.locator('.panel').first()).toBeVisible();
    if (!view) await expect(rows(page)).toHaveCount(6);
    await fits(page, 320);
  }
});

test('a range over midnight has two dates, which a narrow window shows', async ({ page, server }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  const midnight = Date.UTC(2026, 10, 30);
  const [from, to] = [midnight - 1_800_000, midnight + 1_800_000].map(String);
  await openWith(page, server, { q: 'loss', from, to });
  const range = page.locator('.range .menu > button');
  await expect(range).toContainText('29');
  await expect(range).toContainText('30');
  await fits(page, 320);
});
