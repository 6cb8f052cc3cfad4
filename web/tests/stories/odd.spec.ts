/** Charts of odd data, and pages with very much of it. */
import { expect, test } from '@playwright/test';
import { startStories } from './server';
import { HOSTILE, NOW } from './world';

let stories: Awaited<ReturnType<typeof startStories>>;

test.beforeAll(async () => {
  stories = await startStories(10_000);
});
test.afterAll(() => {
  stories.server.closeAllConnections();
  stories.server.close();
});
test.beforeEach(async ({ page }) => {
  await page.clock.setFixedTime(NOW + 3000);
  page.on('pageerror', (error) => {
    throw error;
  });
});

for (const theme of ['light', 'dark']) {
  test(`odd data is drawn as what it is, ${theme}`, async ({ page }) => {
    await page.setViewportSize({ width: 1440, height: 1700 });
    await page.goto(`${stories.url}/r/0000000000000dd1?theme=${theme}`);
    const says = (name: string) => page.locator(`[data-chart=${JSON.stringify(name)}] .plot`);
    await expect(says('constant')).toHaveAttribute('aria-label', /lowest 100, highest 100/);
    await expect(says('all_nan')).toHaveAttribute('aria-label', /no finite value/);
    await expect(says('all_nan')).toContainText('only NaN or infinities');
    await expect(says('huge')).toHaveAttribute('aria-label', /highest 1e308/);
    await expect(says('one_point')).toHaveAttribute('aria-label', /lowest 7, highest 7/);
    await expect(says(HOSTILE)).toHaveAttribute('aria-label', /step 0 to step 400/);
    await expect(page.locator('[data-chart="per_rank"]')).toContainText('20 of 30 shown');
    await expect(page.getByRole('heading', { level: 1 })).toContainText('odd \\u202e run');
    await page.screenshot({ path: `screenshots/odd-${theme}.png` });
    await page.getByRole('button', { name: 'log y' }).click();
    await page.getByRole('button', { name: 'EMA' }).click();
    await expect(page).toHaveURL(/smooth/);
    await page.screenshot({ path: `screenshots/odd-log-${theme}.png` });
  });
}

test('five thousand metrics are folded, and a few can be found', async ({ page }) => {
  await page.goto(`${stories.url}/r/0000000000000dd2`);
  await expect(page.locator('.section')).toHaveCount(40);
  await expect(page.locator('[data-chart="group_0/metric_0"] canvas')).toBeVisible();
  expect(await page.locator('canvas').count()).toBeLessThanOrEqual(48);
  await page.keyboard.press('/');
  await page.keyboard.type('metric_4999');
  await expect(page.locator('.card')).toHaveCount(1);
  await expect(page.locator('.card canvas')).toBeVisible();
});

test('ten thousand runs scroll, and only those on the screen are in the page', async ({ page }) => {
  await page.goto(`${stories.url}/runs`);
  const rows = page.locator('.run-table .row');
  await expect(rows.first()).toBeVisible();
  await expect(page.getByRole('grid')).toHaveAttribute('aria-rowcount', '10004');
  expect(await rows.count()).toBeLessThan(80);
  await page.getByRole('grid').evaluate((grid) => {
    grid.scrollTop = 5000 * 28;
  });
  await expect(page.getByText('run-5003', { exact: true })).toBeVisible();
  expect(await rows.count()).toBeLessThan(80);
});
