/** Health, money and verdicts of made-up runs, to hold beside the design. */
import { expect, test } from '@playwright/test';
import { clean } from '../e2e/axe';
import { startStories } from './server';
import { NOW } from './world';

let stories: Awaited<ReturnType<typeof startStories>>;

test.beforeAll(async () => {
  stories = await startStories(30);
});
test.afterAll(() => {
  stories.server.closeAllConnections();
  stories.server.close();
});
test.beforeEach(async ({ page }) => {
  await page.clock.setFixedTime(NOW + 3000);
});

const run = (at: number) => `/o/acme/research/llm/r/${(0xabc000 + at).toString(16).padStart(16, '0')}`;

for (const theme of ['light', 'dark']) {
  test(`two verdicts lead, the rest is counted, and evidence has its numbers, ${theme}`, async ({ page }) => {
    await page.goto(`${stories.url}${run(0)}/charts?theme=${theme}`);
    const health = page.getByRole('region', { name: 'Health' });
    await expect(health.locator('.strip')).toHaveCount(2);
    await expect(health.locator('.strip').first()).toContainText('Rank 17 is slow.');
    await expect(health.locator('.strip').first()).toContainText('z 49.9 · held 4 of 4 windows');
    await expect(page.locator('.facts')).toContainText('ETTR 0.93');
    const spells = page.getByRole('region', { name: 'Events', exact: true }).locator('.spell');
    await expect(spells.getByRole('link', { name: /^StragglerPage firing since/ })).toHaveAttribute(
      'href',
      '/alerts?rule=StragglerPage',
    );
    await expect(spells.getByRole('link', { name: /^RunStalled \d\d:\d\d –/ })).toBeVisible();
    await expect(page.locator('.spell', { hasText: 'StragglerPage' })).toHaveAttribute(
      'title',
      /^Rank 17 is slow: /,
    );
    await expect(page.locator('[data-chart="loss"] canvas')).toBeVisible();
    await page.screenshot({ path: `screenshots/health-charts-${theme}.png` });
    await health.getByRole('button', { name: 'and 2 more' }).click();
    await expect(health.locator('.strip')).toHaveCount(4);
    await expect(health.locator('.strip').last()).toContainText('\\u202e');
    await health.getByRole('button', { name: 'Evidence' }).first().click();
    await expect(health.getByRole('region', { name: 'Evidence' })).toContainText('1.404 GHz');
    await expect(page).toHaveURL(/verdict=v-1/);
    await clean(page);
    await page.screenshot({ path: `screenshots/health-evidence-${theme}.png` });
    await page.reload();
    await expect(health.getByRole('region', { name: 'Evidence' })).toContainText('peers');
  });

  test(`the overview has six numbers, money and what has passed, ${theme}`, async ({ page }) => {
    await page.goto(`${stories.url}${run(0)}/overview?theme=${theme}`);
    const money = page.getByRole('region', { name: 'Money' });
    await expect(money).toContainText('revision 14');
    await expect(money.getByRole('row', { name: /with idle/ }).locator('b')).toHaveText(/0\.095/);
    await expect(page.locator('.tiles')).toContainText('31.1\u2009%');
    await page.getByRole('button', { name: 'Communication was slow' }).click();
    await expect(page.locator('.evidence')).toContainText('Found and cleared');
    await clean(page);
    await page.screenshot({ path: `screenshots/health-overview-${theme}.png` });
  });
}

for (const theme of ['light', 'dark']) {
  test(`ranks have the verdict as a card with its numbers and what it costs an hour, ${theme}`, async ({
    page,
  }) => {
    await page.goto(`${stories.url}${run(0)}/ranks?theme=${theme}&rank=17`);
    const card = page.getByRole('region', { name: 'Verdict' });
    await expect(card.getByRole('heading')).toHaveText('Rank 17 is slow: thermal');
    await expect(card).toContainText('1.2495 page at 1.10');
    await expect(card).toContainText('0.150 s peers 0.400 s');
    await expect(card).toContainText('about $\u200927.42 / h');
    await expect(card.getByRole('link', { name: 'Propose drain of host-3' })).toHaveAttribute(
      'href',
      /remediation\?.*host=host-3/,
    );
    await expect(page.locator('.health .strip')).toHaveCount(1);
    await expect(page.locator('.map .onset-line')).toHaveCount(3);
    await clean(page);
    await page.screenshot({ path: `screenshots/health-ranks-${theme}.png` });
    await page.goto(`${stories.url}${run(1)}/ranks?theme=${theme}`);
    const table = page.getByRole('region', { name: 'Last step and collective of each rank' });
    await expect(table.locator('tbody tr').first()).toContainText('not entered');
    await expect(table.locator('tbody th').first()).toHaveText('42');
    await expect(page.locator('.map')).toHaveCount(0);
    await clean(page);
    await page.screenshot({ path: `screenshots/health-hang-${theme}.png` });
  });
}

test('a verdict on more than one rank tints their rows from its onset on', async ({ page }) => {
  await page.goto(`${stories.url}${run(6)}/ranks?theme=dark`);
  await expect(page.getByRole('region', { name: 'Verdict' })).toContainText('Move layers from stage 1');
  const map = page.getByRole('application', { name: /^Map of/ });
  const tint = map.locator('.tint.info');
  await expect(tint).toHaveCount(1);
  const [row, all, of] = [tint, map, page.locator('.map canvas')].map((l) => l.boundingBox());
  const [tinted, whole, canvas] = [(await row)!, (await all)!, (await of)!];
  expect(Math.round((tinted.y - whole.y) / (canvas.height / 6))).toBe(1);
  expect(Math.round(tinted.height / (canvas.height / 6))).toBe(2);
  expect((tinted.x - whole.x) / whole.width).toBeCloseTo(0.5, 1);
  await page.screenshot({ path: 'screenshots/health-stage-dark.png' });
});

test('what is not priced says which setting prices it', async ({ page }) => {
  await page.goto(`${stories.url}${run(2)}/overview`);
  const row = page.getByRole('region', { name: 'Money' }).getByRole('row', { name: /So far/ });
  await expect(row).toContainText('prices = ["h100-sxm=2.50"]');
  await expect(page.getByRole('region', { name: 'Health of the run' })).toContainText(
    'Nothing is wrong: 64 of 64',
  );
  await expect(page.locator('.health .strip')).toHaveCount(0);
});

test('health that is not known says why, and one that cannot be read can be asked again', async ({
  page,
}) => {
  await page.goto(`${stories.url}${run(3)}/overview`);
  await expect(page.getByRole('region', { name: 'Health of the run' })).toContainText('the run logs no');
  await page.route('**/health', (route) =>
    route.fulfill({ status: 503, json: { error: { message: 'store is full' } } }),
  );
  await page.goto(`${stories.url}${run(4)}/charts`);
  await expect(page.getByRole('alert')).toContainText('Health is not known: 503 store is full');
  await page.unroute('**/health');
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('health that is not known at first comes by itself, also when nothing else is new', async ({ page }) => {
  let asked = 0;
  await page.route('**/health', async (route) => {
    asked += 1;
    const answer = await route.fetch();
    const health = await answer.json();
    const unknown = { ...health, state: 'unknown', reason: 'No step of it is known.', watched: null };
    await route.fulfill({ json: asked === 1 ? unknown : health });
  });
  // Its stream opens and tells nothing.
  await page.route('**/stream?*', (route) =>
    route.fulfill({ contentType: 'text/event-stream', body: 'retry: 600000\n\n' }),
  );
  await page.goto(`${stories.url}${run(8)}/overview`);
  const health = page.getByRole('region', { name: 'Health of the run' });
  await expect(health).toContainText('No step of it is known');
  await expect(health).toContainText('Nothing is wrong: 64 of 64');
});
