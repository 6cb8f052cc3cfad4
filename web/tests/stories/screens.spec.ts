/** Pictures of both pages, light and dark, to hold beside the design. */
import { expect, test } from '@playwright/test';
import { startStories } from './server';
import { NOW } from './world';

let stories: Awaited<ReturnType<typeof startStories>>;

test.beforeAll(async () => {
  stories = await startStories(1200);
});
test.afterAll(() => {
  stories.server.closeAllConnections();
  stories.server.close();
});
test.beforeEach(async ({ page }) => {
  await page.clock.setFixedTime(NOW + 3000);
});

for (const theme of ['light', 'dark']) {
  test(`runs page shows its rows, ${theme}`, async ({ page }) => {
    await page.goto(
      `${stories.url}/o/acme/research/llm/runs?theme=${theme}&f=started%3A%3E-7d&sel=0000000000abc000`,
    );
    await expect(page.getByRole('row', { name: /pretrain-7b/ })).toBeVisible();
    await expect(page.locator('.spark path').first()).toHaveAttribute('d', /L/);
    await page.screenshot({ path: `screenshots/runs-${theme}.png` });
  });

  test(`run page draws its charts, ${theme}`, async ({ page }) => {
    await page.goto(`${stories.url}/o/acme/research/llm/r/0000000000abc000/charts?theme=${theme}`);
    const loss = page.locator('[data-chart="loss"]');
    await expect(loss.locator('canvas')).toBeVisible();
    await loss.locator('.u-over').hover({ position: { x: 500, y: 80 } });
    await expect(page.locator('.lane .flag')).toContainText('step');
    await expect(page.locator('[data-chart="lr"] canvas')).toBeVisible();
    await page.screenshot({ path: `screenshots/run-charts-${theme}.png` });
    await page.mouse.wheel(0, 900);
    await expect(page.locator('[data-chart="system/cpu/utilization"] canvas')).toBeVisible();
    await page.screenshot({ path: `screenshots/run-charts-system-${theme}.png` });
  });

  test(`overview lists facts, ${theme}`, async ({ page }) => {
    await page.goto(`${stories.url}/o/acme/research/llm/r/0000000000abc000/overview?theme=${theme}`);
    await expect(page.getByText('config/lr')).toBeVisible();
    await expect(page.getByRole('heading', { name: /^Capture/ })).toBeVisible();
    await page.screenshot({ path: `screenshots/overview-${theme}.png` });
  });

  test(`missing series are listed, ${theme}`, async ({ page }) => {
    await page.goto(`${stories.url}/o/acme/research/llm/r/0000000000abc000/missing?theme=${theme}`);
    await expect(page.getByText('3 series are missing')).toBeVisible();
    await page.screenshot({ path: `screenshots/missing-${theme}.png` });
  });

  test(`the timeline has a lane for each of 64 ranks, ${theme}`, async ({ page }) => {
    await page.goto(`${stories.url}/o/acme/research/llm/r/0000000000abc000/timeline?theme=${theme}`);
    const field = page.getByRole('application');
    await expect(page.getByText(/rank 17 on host-3 works/)).toBeVisible();
    await field.focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await expect(page.getByRole('region', { name: 'The chosen span' })).toContainText('of 63');
    await page.screenshot({ path: `screenshots/timeline-${theme}.png` });
    await page.goto(`${page.url()}&nest=1&t0=300&t1=700&find=layer`);
    await expect(page.getByRole('region', { name: 'The chosen span' })).toContainText('of 63');
    await page.waitForFunction(() => {
      const canvas = document.querySelector<HTMLCanvasElement>('.timeline .field canvas');
      return canvas
        ?.getContext('2d')
        ?.getImageData(0, 0, canvas.width, 20)
        .data.some((part) => part !== 0);
    });
    await page.screenshot({ path: `screenshots/timeline-nested-${theme}.png` });
  });
}
