/** The Ranks tab: every rank beside its peers, read from the real server. */
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { curve, type Point, type Push, Writer } from './push';
import type { RealServer } from './server';
import { fits } from './width';

test.use({ world: 'ranks' });

const HOSTILE = '<img src=x onerror=alert(1)>';
const STEPS = 300;
/** Rank 5 is slow from here on. */
const ONSET = 120;
const NOW = Date.now() - 5000;
const host = (rank: number) => `host-${Math.floor(rank / 4) + 1}`;

/** What `tg.step` logs of one rank: each takes as long as the slowest, and waits for it. */
function stepsOf(rank: number): NonNullable<Push['series']> {
  const own = (step: number) =>
    (rank === 5 && step >= ONSET ? 1.25 : 1) + 0.004 * Math.sin(rank * 7.3 + step * 1.7);
  const whole = (step: number) => (step >= ONSET ? 1.4 : 1.1);
  const labels = { rank: String(rank) };
  const late = rank === 7 ? 60 : 0;
  const points = (value: (step: number) => number): Point[] => curve(STEPS, NOW, value).slice(late);
  return [
    { name: 'train_step_seconds', labels, points: points(whole) },
    { name: 'train_step_wait_seconds', labels, points: points((s) => whole(s) - own(s)) },
    { name: HOSTILE, labels, points: points((s) => (rank === 2 && s === 40 ? Number.NaN : 10 + rank)) },
  ];
}

async function openRanks(page: Page, server: RealServer, run: string, query = ''): Promise<void> {
  await page.goto(`${server.url}/o/-/-/p/r/${await runId(server, run)}/ranks${query}`);
}

const map = (page: Page) => page.getByRole('application', { name: /^Map of/ });
const spread = (page: Page) => page.getByRole('region', { name: 'Spread', exact: true });
const plane = (page: Page) => page.getByRole('region', { name: 'Ranks over the run' });
const bars = (page: Page) => page.getByRole('region', { name: 'Ranks at the cursor' });

test.beforeAll(async ({ server }) => {
  const common = { project: 'p', event: 1, job: 'j', timeMs: NOW - STEPS * 1000 };
  for (let rank = 0; rank < 8; rank++)
    await new Writer(server.url).push({
      ...common,
      run: 'eight',
      host: host(rank),
      pid: 100 + rank,
      rank,
      world: 8,
      series: [
        ...stepsOf(rank),
        {
          name: 'system/process/rss_bytes',
          labels: { host: host(rank), pid: String(100 + rank) },
          points: curve(STEPS, NOW, () => 2 ** 30 * (rank === 3 ? 4 : 1)),
        },
      ],
    });
  await new Writer(server.url).push({
    ...common,
    run: 'alone',
    rank: 0,
    world: 64,
    series: [{ name: 'train_step_seconds', labels: { rank: '0' }, points: curve(10, NOW, () => 1) }],
  });
  await new Writer(server.url).push({
    ...common,
    run: 'single',
    series: [{ name: 'loss', points: curve(10, NOW, () => 1) }],
  });
  const many = new Writer(server.url);
  for (let first = 0; first < 3000; first += 500)
    await many.push({
      ...common,
      run: 'many',
      world: 3000,
      series: Array.from({ length: 500 }, (_, at) => ({
        name: 'train_step_seconds',
        labels: { rank: String(first + at), host: `${HOSTILE}-${(first + at) >> 3}` },
        points: curve(12, NOW, () => (first + at === 2999 ? 2 : 1)),
      })),
    });
});

test('the slow rank is named, with its host, how far it is and since when', async ({ page, server }) => {
  await openRanks(page, server, 'eight');
  await expect(spread(page)).toContainText(
    /Widest: rank 5 on host-2\. 1\.25\s× the median of the others, since step 120\./,
  );
  await expect(page.getByRole('status').filter({ hasText: 'ranks report' })).toContainText(
    '8 of 8 ranks report',
  );
  await expect(page.getByRole('button', { name: 'own step' })).toHaveAttribute('aria-pressed', 'true');
  const first = page.getByRole('region', { name: 'Farthest ranks' }).getByRole('row').nth(1);
  await expect(first).toContainText(/5.*host-2.*1\.2\d+\ss.*1\.25\s×.*step 120/);
  await expect(plane(page)).toContainText('1 column = 1 logged step');
});

test('waiting is the other way round, and own history is another question', async ({ page, server }) => {
  await openRanks(page, server, 'eight');
  await page.getByRole('button', { name: 'wait', exact: true }).click();
  await expect(page).toHaveURL(/series=train_step_wait_seconds/);
  await expect(spread(page)).toContainText(/Widest: rank 5 on host-2\. 0\.3[78]\s×/);
  await page.keyboard.press('p');
  await expect(page).toHaveURL(/base=own/);
  await expect(plane(page).getByRole('heading')).toContainText('own median');
  await page.getByRole('button', { name: 'whole step' }).click();
  await page.getByRole('button', { name: 'all others' }).click();
  await expect(spread(page)).toContainText('No rank stands out.');
  await page.reload();
  await expect(page.getByRole('button', { name: 'whole step' })).toHaveAttribute('aria-pressed', 'true');
});

test('keys move on the map, a screen reader hears the cell, and Enter keeps it', async ({ page, server }) => {
  await openRanks(page, server, 'eight');
  await expect(spread(page)).toContainText('Widest');
  await map(page).focus();
  const said = map(page).locator('[aria-live]');
  await expect(said).toHaveText(/rank 0 on host-1, step 0: 1\ss, 1\.00\s× the median of the others/);
  for (let at = 0; at < 7; at++) await page.keyboard.press('ArrowDown');
  await expect(said).toHaveText('rank 7 on host-2, step 0: absent');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('End');
  await expect(said).toHaveText(/rank 5 on host-2, step 299: 1\.2\d+\ss, 1\.25\s× the median of the others/);
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/rank=5&step=299/);
  await expect(bars(page).getByRole('img')).toHaveAttribute('aria-label', /^step 299: 8 ranks, least 0\.99/);
  await page.keyboard.press('Shift+ArrowLeft');
  await expect(said).toHaveText(/step 289/);
  await page.keyboard.press('Escape');
  await expect(page).not.toHaveURL(/rank=/);
});

test('the cursor is in all plots, and its values are real', async ({ page, server }) => {
  await openRanks(page, server, 'eight');
  await expect(spread(page)).toContainText('Widest');
  const box = (await map(page).boundingBox())!;
  await map(page).hover({ position: { x: box.width * 0.1, y: box.height * (5.5 / 8) } });
  await expect(plane(page).locator('.under')).toHaveText(
    /rank 5 on host-2, step (29|30|31): (1\.00\d|0\.99\d+)\ss, 1\.00\s×/,
  );
  await expect(bars(page)).toContainText(/step (29|30|31)/);
  await expect(plane(page).locator('.at-cursor')).toContainText('median of 7');
  await expect(page.locator('.cursor-line')).toHaveCount(2);
  await map(page).click({ position: { x: box.width * 0.9, y: box.height * (5.5 / 8) } });
  await expect(page).toHaveURL(/rank=5/);
  await page.mouse.move(5, 5);
  await expect(bars(page)).toContainText(/step (269|270|271)/);
  await expect(plane(page).locator('.at-cursor')).toContainText(/rank 5\s*1\.2/);
});

test('a drag zooms, and the way back is a key', async ({ page, server }) => {
  await openRanks(page, server, 'eight');
  await expect(spread(page)).toContainText('Widest');
  const box = (await map(page).boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.5, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=1(49|50)&to=22[3-6]/);
  await expect(spread(page)).toContainText('over all that is shown');
  await page.keyboard.press('Backspace');
  await expect(spread(page)).toContainText('since step 120');
  await page.goForward();
  await expect(spread(page)).toContainText('over all that is shown');
  await page.keyboard.press('0');
  await expect(spread(page)).toContainText('since step 120');
});

test('processes are held beside each other by the rank of their session', async ({ page, server }) => {
  await openRanks(page, server, 'eight', '?series=system/process/rss_bytes&order=value');
  await expect(spread(page)).toContainText(/Widest: rank 3 on host-1\. 4\.00\s×/);
  await map(page).focus();
  await expect(map(page).locator('[aria-live]')).toHaveText(/^rank 3 on host-1, .*UTC: 4\.000\sGiB/);
});

test('what is no number is told apart from what is absent', async ({ page, server }) => {
  await openRanks(page, server, 'eight', `?series=${encodeURIComponent(HOSTILE)}&rank=2`);
  await expect(plane(page).getByRole('heading')).toContainText('<img src=x');
  await expect(spread(page)).not.toBeEmpty();
  await map(page).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  for (let at = 0; at < 4; at++) await page.keyboard.press('Shift+ArrowRight');
  await expect(map(page).locator('[aria-live]')).toHaveText('rank 2 on host-1, step 40: not a finite number');
});

test('one rank that reports, or one process, says what to do', async ({ page, server }) => {
  await openRanks(page, server, 'alone');
  await expect(page.getByRole('heading', { name: '1 of 64 ranks reports series of its own' })).toBeVisible();
  await expect(page.locator('pre')).toContainText('s.phase("wait")');
  await clean(page);
  await openRanks(page, server, 'single');
  await expect(page.getByRole('heading', { name: 'One process, no ranks to compare' })).toBeVisible();
});

test('thousands of ranks are groups of hosts, read in few parts, and a group opens', async ({
  page,
  server,
}) => {
  const asked: string[] = [];
  page.on('request', (request) => request.url().includes('/api/') && asked.push(request.url()));
  await openRanks(page, server, 'many', '?order=value');
  await expect(page.getByRole('status').filter({ hasText: 'ranks report' })).toContainText('3,000 of 3,000');
  await expect(spread(page)).toContainText(
    /Widest: rank 2999 on <img src=x.*2\.00\s×.*over all that is shown/,
  );
  expect(asked.filter((url) => url.endsWith('/points')).length).toBeLessThanOrEqual(4);
  expect(asked.length).toBeLessThanOrEqual(12);
  await map(page).focus();
  const said = map(page).locator('[aria-live]');
  await expect(said).toHaveText(/, 8 ranks 2992 to 2999, step 0: worst is rank 2999: 2\ss, 2\.00\s×/);
  await page.keyboard.press('Enter');
  await page.keyboard.press('ArrowDown');
  await expect(said).toHaveText(/^rank 2999 on <img/);
  await expect(page.locator('main img')).toHaveCount(0);
  await clean(page);
});

test('points that come in later show up by themselves', async ({ page, server }) => {
  const writers = [0, 1].map(() => new Writer(server.url));
  const push = async (from: number, slow: number) => {
    for (const [rank, writer] of writers.entries())
      await writer.push({
        project: 'p',
        run: 'growing',
        event: 1,
        rank,
        world: 2,
        series: [
          {
            name: 'lag_seconds',
            labels: { rank: String(rank) },
            points: curve(30, Date.now(), () => 1 + rank * slow, from),
          },
        ],
      });
  };
  await push(0, 0);
  await openRanks(page, server, 'growing');
  await expect(spread(page)).toContainText('No rank stands out.');
  await push(30, 1);
  await expect(spread(page)).toContainText(/Widest: rank 1 on host-1\. 2\.00\s×.*since step 30/);
});

test('an error is told, and asking again helps', async ({ page, server }) => {
  await page.route('**/api/tg/v1/points', (route) =>
    route.fulfill({
      status: 503,
      json: { error: { code: 'full', message: 'store is full', request_id: 'r-9' } },
    }),
  );
  await openRanks(page, server, 'eight');
  await expect(page.getByRole('alert')).toContainText('cannot read: 503 store is full');
  await page.unroute('**/api/tg/v1/points');
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(spread(page)).toContainText('Widest: rank 5');
  await expect(page.getByRole('alert')).toHaveCount(0);
});

for (const theme of ['light', 'dark']) {
  test(`the page is clean for axe and flows into 320 pixels, ${theme}`, async ({ page, server }) => {
    await openRanks(page, server, 'eight', `?theme=${theme}&rank=5&step=200`);
    await expect(spread(page)).toContainText('Widest');
    await clean(page);
    await page.setViewportSize({ width: 320, height: 800 });
    await fits(page, 320);
    await clean(page);
  });
}
