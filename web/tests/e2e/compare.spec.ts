/** Compare: several runs on the same charts. */
import { readFile } from 'node:fs/promises';
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { card, expect, runId, test, words } from './fixture';
import { curve, Writer } from './push';
import type { RealServer } from './server';
import { fits } from './width';

test.use({ world: 'compare' });

const HOSTILE = '<img src=x onerror=alert(1)>';

test.beforeAll(async ({ server }) => {
  const now = Date.now();
  const runs = [
    { run: 'base', lr: '0.1', tags: ['old'], shift: 0 },
    { run: 'wide', lr: '0.1', tags: ['new'], shift: 1 },
    { run: HOSTILE, lr: '0.3', tags: ['new'], shift: 2 },
  ];
  for (const { run, lr, tags, shift } of runs) {
    const writer = new Writer(server.url);
    await writer.push({
      project: 'p',
      run,
      tags,
      event: 1,
      attributes: { 'config/lr': lr, 'config/same': 'x', ...(shift === 1 ? { 'config/only': 'here' } : {}) },
      timeMs: now - 600_000,
      series: [
        { name: 'loss', points: curve(200, now - shift * 100_000, (s) => shift + 100 / (100 + s)) },
        ...[0, 1].map((rank) => ({
          name: 'per_rank',
          labels: { rank: `${rank}` },
          points: curve(200, now, () => 10 * shift + rank),
        })),
        // Its steps count samples, as autocapture's do.
        { name: 'system/cpu/utilization', points: curve(200, now, () => 5) },
        ...(shift === 0 ? [{ name: 'only_base', points: curve(5, now, (s) => s) }] : []),
      ],
    });
  }
});

async function openAll(page: Page, server: RealServer, more: Record<string, string> = {}): Promise<void> {
  const runs = await Promise.all(['base', 'wide', HOSTILE].map((name) => runId(server, name)));
  await page.goto(`${server.url}/compare?${new URLSearchParams({ runs: runs.join(), ...more })}`);
  await expect(card(page, 'loss').locator('canvas')).toBeVisible();
}

test('runs are chosen in the list and compared on the same charts', async ({ page, server }) => {
  await page.goto(`${server.url}/runs`);
  await page.getByRole('checkbox', { name: 'Select base' }).check();
  await page.getByRole('checkbox', { name: 'Select wide' }).check();
  await page.getByRole('button', { name: 'Compare' }).click();
  await expect(page).toHaveURL(/\/compare\?runs=\w+%2C\w+/);
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 199.*2 of 2 series/);
  await expect(card(page, 'loss').locator('.readout')).toHaveText([/wide.*1\.334/, /base.*0\.334/].reverse());
  await page.getByRole('button', { name: 'Leave out wide' }).click();
  await expect(card(page, 'loss').locator('.readout')).toHaveCount(1);
  await page.goBack();
  await expect(page.getByRole('heading', { name: 'Runs' })).toBeVisible();
});

test('only differences are listed, and a click groups by one', async ({ page, server }) => {
  await openAll(page, server);
  const table = page.getByRole('region', { name: 'Table of differences' });
  await expect(table.getByRole('rowheader')).toHaveText(['config/lr', 'config/only']);
  await expect(table.getByRole('row', { name: /config\/only/ }).getByRole('cell')).toHaveText([
    '—',
    'here',
    '—',
  ]);
  await table.getByRole('button', { name: 'config/lr' }).click();
  await expect(page).toHaveURL(/group=attribute%3Aconfig%2Flr/);
  await expect(card(page, 'loss').getByText('mean of 3')).toBeVisible();
  await expect(card(page, 'loss').locator('.readout .what')).toHaveText(['0.1 · n=2', '0.3 · n=1']);
  // The mean of 0 + f and 1 + f, with f = 100 / 299 at the last step.
  await expect(card(page, 'loss').locator('.readout b').first()).toHaveText('0.8344');
  // Groups take the first colours, whatever was drawn before.
  const colours = card(page, 'loss').locator('.readout .swatch path');
  await expect(colours.first()).toHaveAttribute('style', /--series-1/);
  await expect(colours.nth(1)).toHaveAttribute('style', /--series-2/);
  await page.reload();
  await expect(page.getByRole('combobox', { name: 'Group by' })).toHaveValue('attribute:config/lr');
  await expect(card(page, 'loss').locator('.readout .what')).toHaveText(['0.1 · n=2', '0.3 · n=1']);
});

test('tags, hosts and ranks are groups, too', async ({ page, server }) => {
  await openAll(page, server, { group: 'tag' });
  await expect(card(page, 'loss').locator('.readout .what')).toHaveText(['old · n=1', 'new · n=2']);
  await page.getByRole('combobox', { name: 'Group by' }).selectOption('rank');
  await expect(card(page, 'per_rank').getByText('mean of 6')).toBeVisible();
  await expect(card(page, 'per_rank').locator('.readout')).toHaveText([/0.*10/, /1.*11/]);
  await expect(card(page, 'loss').locator('.readout .what')).toHaveText(['without rank · n=3']);
});

test('axis, zoom and cursor are shared by all charts', async ({ page, server }) => {
  await openAll(page, server);
  const area = (await card(page, 'loss').locator('.u-over').boundingBox())!;
  await page.mouse.move(area.x + area.width * 0.25, area.y + 60);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width * 0.5, area.y + 60, { steps: 5 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=[\d.]+&to=[\d.]+/);
  await expect(words(page, 'per_rank')).toHaveAttribute('aria-label', /step (49|50) to step (99|100)/);
  await page.keyboard.press('0');
  await expect(words(page, 'per_rank')).toHaveAttribute('aria-label', /step 0 to step 199/);
  await page.keyboard.press('x');
  await expect(page).toHaveURL(/x=relative/);
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /after the start/);
});

test('a metric that not all have says so, and a run that is gone is named', async ({ page, server }) => {
  await openAll(page, server);
  await expect(card(page, 'only_base').getByText('1 of 3 runs')).toBeVisible();
  await expect(page.getByText(/No point on this axis.*system_cpu_utilization/)).toBeVisible();
  await page.getByRole('button', { name: 'Show them over time' }).click();
  await expect(card(page, 'system/cpu/utilization').locator('canvas')).toBeVisible();
  await page.goto(`${server.url}/compare?runs=${await runId(server, 'base')},00000000000000ff`);
  await expect(page.getByText(/00000000000000ff is left out: 404/)).toBeVisible();
  await expect(card(page, 'loss').locator('canvas')).toBeVisible();
  await page.goto(`${server.url}/compare`);
  await expect(page.getByRole('heading', { name: 'No runs are chosen' })).toBeVisible();
});

for (const theme of ['light', 'dark']) {
  test(`the page is clean for axe, and hostile names are text, ${theme}`, async ({ page, server }) => {
    await openAll(page, server, { theme });
    await expect(page.getByRole('list', { name: 'Runs' })).toContainText(HOSTILE);
    await expect(page.locator('main img')).toHaveCount(0);
    await clean(page);
    await page.setViewportSize({ width: 320, height: 640 });
    await openAll(page, server, { theme, group: 'tag' });
    await fits(page, 320);
    await clean(page);
  });
}

test('a base is chosen in the table, and the others are measured against it', async ({ page, server }) => {
  await openAll(page, server);
  const outcome = page.getByRole('region', { name: 'Table of outcomes' });
  await expect(outcome.getByRole('row', { name: /^loss/ }).getByRole('cell').first()).toHaveText(
    /0\.3344 best 0\.3344 @ 199/,
  );
  await outcome.getByRole('button', { name: 'base' }).click();
  await expect(page).toHaveURL(/base=/);
  await expect(outcome.getByRole('row', { name: /^loss/ }).getByRole('cell').nth(1)).toHaveText(
    /1\.334 \+299\s% best/,
  );
  await page.reload();
  await expect(outcome.getByText('base', { exact: true })).toHaveCount(2);
  const differences = page.getByRole('region', { name: 'Table of differences' });
  await expect(differences.locator('td.same')).toHaveText(['0.1', '—']);
});

test('all points of the runs are one file', async ({ page, server }) => {
  await openAll(page, server);
  const [file] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('e')]);
  expect(file.suggestedFilename()).toBe('3-runs.parquet');
  const bytes = await readFile(await file.path());
  expect([bytes.subarray(0, 4).toString(), bytes.subarray(-4).toString()]).toEqual(['PAR1', 'PAR1']);
});

test('fifty runs lie on one chart and become groups, and runs that share nothing say so', async ({
  page,
  server,
}) => {
  const writers = Array.from({ length: 50 }, async (_, at) => {
    await new Writer(server.url).push({
      project: 'many',
      run: `r${at}`,
      tags: [at % 2 ? 'odd' : 'even'],
      event: 1,
      timeMs: Date.now() - 600_000,
      series: [{ name: at < 48 ? 'score' : `own_${at}`, points: curve(50, Date.now(), (s) => s + at) }],
    });
  });
  await Promise.all(writers);
  const ids = await Promise.all(Array.from({ length: 50 }, (_, at) => runId(server, `r${at}`)));
  await page.goto(`${server.url}/compare?runs=${ids.join()}`);
  await expect(words(page, 'score')).toHaveAttribute('aria-label', /48 of 48 series/);
  await expect(page.getByText('+ add')).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Group by' }).selectOption('tag');
  await expect(card(page, 'score').locator('.readout .what')).toHaveText(['even · n=24', 'odd · n=24']);
  // The mean of 49 + 0, 2, .. 46.
  await expect(card(page, 'score').locator('.readout b').first()).toHaveText('72');
  await page.goto(`${server.url}/compare?runs=${ids.slice(48).join()}`);
  await expect(page.getByRole('heading', { name: 'No metric is in two of these runs' })).toBeVisible();
  await expect(page.getByText('r48 has own_48')).toBeVisible();
});
