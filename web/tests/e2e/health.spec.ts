/** What the real server concludes of a run, on its pages. */
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { curve, Writer } from './push';
import type { RealServer } from './server';
import { train } from './slow_run';

test.use({ world: 'health' });

const HOSTILE = '<img src=x onerror=alert(1)>\u202e';

/** A job of eight whose ranks are alive and did their last step a minute ago; rank 6 did not enter the exchange. */
async function standStill(server: RealServer) {
  const last = Date.now() - 60_000;
  for (let rank = 0; rank < 8; rank++) {
    const labels = { rank: String(rank) };
    const progress = { rank: String(rank), group: 'dp' };
    const entered = rank === 6 ? 1203 : 1204;
    await new Writer(server.url).push({
      project: 'p',
      run: 'still',
      event: 1,
      job: 'j',
      host: `host-${rank >> 2}`,
      pid: 100 + rank,
      rank,
      world: 8,
      timeMs: Date.now(),
      series: [
        { name: 'train_step_seconds', labels, points: curve(60, last, () => 1) },
        { name: 'train_step_wait_seconds', labels, points: curve(60, last, () => 0.15) },
        { name: 'train_collective_sequence', labels: progress, points: [{ ms: last, value: entered }] },
        { name: 'train_collective_completed', labels: progress, points: [{ ms: last, value: 1203 }] },
      ],
    });
  }
}

/** A run for each test, which goes on as long as it: half a minute after its last step one hangs, and that leads. */
let slow = '';
let trained = 0;
let goingOn: { stop: () => Promise<void> };
test.beforeEach(async ({ server }) => {
  trained += 1;
  slow = `slow-${trained}`;
  goingOn = keepOn(await train(server, slow, 5, (rank) => `host-${rank >> 3}`));
});
test.afterEach(() => goingOn.stop());

/** Calls `push` every few seconds. */
function keepOn(push: () => Promise<void>): { stop: () => Promise<void> } {
  let isOver = false;
  let last = Promise.resolve();
  const timer = setInterval(() => {
    last = last.then(() => (isOver ? undefined : push()));
  }, 3000);
  return {
    stop: () => {
      isOver = true;
      clearInterval(timer);
      return last;
    },
  };
}

const strips = (page: Page) => page.getByRole('region', { name: 'Health', exact: true }).locator('.strip');

async function openRun(page: Page, server: RealServer, run: string, tab: string, query = ''): Promise<void> {
  await page.goto(`${server.url}/o/-/-/p/r/${await runId(server, run)}/${tab}${query}`);
}

test('the slow rank leads each tab by name, with its evidence and its onset', async ({ page, server }) => {
  await openRun(page, server, slow, 'charts');
  const strip = strips(page).first();
  await expect(strip).toContainText(/Rank 5/);
  const spell = page.locator('.lane .spell', { hasText: 'StragglerPage firing since' });
  await expect(spell).toHaveAttribute('title', /Rank 5.*: StragglerPage/, { timeout: 45_000 });
  await expect(spell.getByRole('link')).toHaveAttribute('href', '/alerts?rule=StragglerPage');
  await strip.getByRole('button', { name: 'Evidence' }).click();
  await expect(strip.locator('.evidence')).toContainText(/peers/);
  await expect(strip.locator('.evidence')).toContainText('How it is judged');
  await strip.getByRole('link', { name: 'Open ranks' }).click();
  await expect(page).toHaveURL(/\/ranks\?.*rank=5/);
  const card = page.getByRole('region', { name: 'Verdict' });
  await expect(card).toContainText(/1\.2[45]\d\d/);
  await expect(card).toContainText(/0\.15\d s peers 0\.\d+ s/);
  await expect(page.locator('.map .onset-line')).not.toHaveCount(0);
  await expect(page.getByRole('img', { name: /^SM clock of each rank/ })).toHaveAttribute(
    'aria-label',
    'SM clock of each rank over the median, 16 known, the slowest is rank 5 at 0.80',
  );
});

test('a strip is as high as its line on each tab, also once other pages were open', async ({
  page,
  server,
}) => {
  await openRun(page, server, slow, 'charts');
  const strip = strips(page).first();
  const height = async () => (await strip.boundingBox())?.height ?? Number.NaN;
  await expect(strip).toContainText(/Rank 5/);
  await expect.poll(height).toBeLessThan(48);
  await page.getByRole('navigation').getByRole('link', { name: 'Alerts' }).click();
  await expect(page.getByRole('heading', { name: 'Alerts', level: 1 })).toBeVisible();
  await page.goBack();
  await page.getByRole('link', { name: 'Training', exact: true }).click();
  await expect(page.locator('.training')).toBeVisible();
  await expect(strip).toContainText(/Rank 5/);
  await expect.poll(height).toBeLessThan(48);
});

test('a timeline without spans flows into a narrow window', async ({ page, server }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await openRun(page, server, slow, 'timeline', '?step=7');
  await expect(page.locator('main')).toContainText(/span/);
  await expect(strips(page).first()).toBeVisible();
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
});

test('the list of runs has the claim and the spread', async ({ page, server }) => {
  await page.goto(`${server.url}/runs`);
  const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: slow, exact: true }) });
  await expect(row).toContainText(/Rank 5/);
  await expect(row).toContainText(/2\d(\.\d)?\s%/);
});

test('an even run says what that stands on, and what its money lacks', async ({ page, server }) => {
  await train(server, 'even', -1, (rank) => `host-${rank >> 3}`);
  await openRun(page, server, 'even', 'overview');
  await expect(page.getByRole('region', { name: 'Health of the run' })).toContainText(
    /Nothing is wrong: 16 of 16 ranks watched/,
  );
  await expect(strips(page)).toHaveCount(0);
  const cost = page.getByRole('region', { name: 'Money' }).getByRole('row', { name: /So far/ });
  await expect(cost).toContainText('—');
  await expect(cost.locator('.why')).toContainText(/\w{4,}/);
});

test('a job that stands still has the rank that did not enter first, with its last step and sequence', async ({
  page,
  server,
}) => {
  await standStill(server);
  await openRun(page, server, 'still', 'charts');
  await expect(strips(page).first()).toContainText(/rank 6/i);
  await strips(page).first().getByRole('link', { name: 'Open ranks' }).click();
  const rows = page
    .getByRole('region', { name: 'Last step and collective of each rank' })
    .locator('tbody tr');
  await expect(rows).toHaveCount(8);
  await expect(rows.first().locator('th')).toHaveText('6');
  await expect(rows.first()).toContainText(/host-1\s*59.*1,203\s*1,203/);
  await expect(rows.last()).toContainText(/1,204\s*1,203/);
  // Steps that are not done say nothing: their map and bars are not there.
  await expect(page.locator('.map')).toHaveCount(0);
});

test('a verdict is muted for an hour, which a reload keeps and its button takes back', async ({
  page,
  server,
}) => {
  await openRun(page, server, slow, 'ranks');
  const card = page.getByRole('region', { name: 'Verdict' });
  await card.getByRole('button', { name: 'Mute 1 h' }).click();
  const muted = card.getByRole('button', { name: /^Muted until \d\d:\d\d, unmute/ });
  await expect(muted).toBeVisible();
  const { silences } = (await (await fetch(`${server.url}/api/tg/v1/silences`)).json()) as {
    silences: { matchers: { name: string; value: string }[]; starts_at: number; ends_at: number }[];
  };
  expect(silences).toHaveLength(1);
  expect(silences[0].ends_at - silences[0].starts_at).toBe(3_600_000);
  expect(silences[0].matchers).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ name: 'run_id', value: await runId(server, slow) }),
      expect.objectContaining({ name: 'rank', value: '5' }),
    ]),
  );
  await page.reload();
  await muted.click();
  await expect(card.getByRole('button', { name: 'Mute 1 h' })).toBeVisible();
  await page.reload();
  await expect(card.getByRole('button', { name: 'Mute 1 h' })).toBeVisible();
});

test('who is no admin sees that one could mute, and what is lacking', async ({ page, server }) => {
  const caller = { name: 'ada', how: 'token', session: true, scopes: ['read'] };
  const bounds = { organization: null, workspace: null, project: null };
  await page.route('**/api/tg/v1/session', (route) =>
    route.fulfill({ json: { guarded: true, caller: { ...caller, ...bounds } } }),
  );
  let asked = 0;
  page.on('request', (request) => {
    if (request.method() === 'POST' && request.url().endsWith('/silences')) asked++;
  });
  await openRun(page, server, slow, 'ranks');
  const mute = page.getByRole('region', { name: 'Verdict' }).getByRole('button', { name: 'Mute 1 h' });
  await expect(mute).toBeDisabled();
  await expect(mute).toHaveAccessibleDescription('needs scope admin');
  await mute.focus();
  await page.keyboard.press('Enter');
  await expect(mute).toBeFocused();
  expect(asked).toBe(0);
  await clean(page);
});

test('hostile host names stay text', async ({ page, server }) => {
  await train(server, 'odd', 5, (rank) => `${HOSTILE}${rank >> 3}`);
  await openRun(page, server, 'odd', 'charts');
  await expect(strips(page).first()).toContainText(/Rank 5/);
  await strips(page).first().getByRole('button', { name: 'Evidence' }).click();
  await openRun(page, server, 'odd', 'ranks');
  await expect(page.getByRole('region', { name: 'Verdict' })).toContainText('<img src=x');
  await expect(page.getByRole('region', { name: 'Verdict' })).toContainText('\\u202e');
});

for (const theme of ['light', 'dark'])
  test(`pages of a run that is held up are accessible, ${theme}`, async ({ page, server }) => {
    for (const tab of ['overview', 'charts', 'ranks']) {
      await openRun(page, server, slow, tab, `?theme=${theme}`);
      await expect(page.getByText(/Rank 5/).first()).toBeVisible();
      await clean(page);
      await page.screenshot({ path: `screenshots/health-real-${tab}-${theme}.png` });
    }
  });
