/** The Training tab of a large job, light and dark, to hold beside the design. */
import { expect, type Page, test } from '@playwright/test';
import { startStories } from './server';
import { breakdownOf, quantilesOf, trainedRun, trainingOf } from './training';
import { NOW } from './world';

let stories: Awaited<ReturnType<typeof startStories>>;

test.beforeAll(async () => {
  stories = await startStories(10);
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
  const of = trainedRun().run_id;
  await page.route(`**/runs/${of}/training`, (route) => route.fulfill({ json: trainingOf() }));
  await page.route(`**/runs/${of}/timeline?part=breakdown*`, (route) =>
    route.fulfill({ json: breakdownOf(new URL(route.request().url()).searchParams) }),
  );
  await page.route('**/api/v1/query_range', (route) =>
    route.fulfill({ json: quantilesOf(new URLSearchParams(route.request().postData() ?? '')) }),
  );
});

const panel = (page: Page, id: string) => page.locator(`[data-panel="${id}"]`);

for (const theme of ['light', 'dark']) {
  test(`the training of 64 ranks on one page, ${theme}`, async ({ page }) => {
    await page.setViewportSize({ width: 1440, height: 1080 });
    await page.goto(
      `${stories.url}/o/acme/research/megatron-lm/r/${trainedRun().run_id}/training?theme=${theme}`,
    );
    for (const id of ['loss', 'mfu', 'memory', 'breakdown', 'step_time', 'spread'])
      await expect(panel(page, id).locator('canvas')).toBeVisible();
    await expect(panel(page, 'spread')).toContainText('Farthest: rank 17, 1.21 ×');
    await panel(page, 'loss')
      .locator('.u-over')
      .hover({ position: { x: 330, y: 60 } });
    await expect(page.locator('.lane .flag')).toContainText('step');
    await page.screenshot({ path: `screenshots/training-${theme}.png`, fullPage: true });
  });
}
