/** Pictures of the fleet's pages, light and dark, to hold beside the design. */
import { expect, type Page, test } from '@playwright/test';
import { clean } from '../e2e/axe';
import { HOSTILE, tellFleet } from './fleet';
import { startStories } from './server';
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
  await page.clock.setFixedTime(NOW);
});

const map = (page: Page) => page.getByRole('application', { name: /^Map of/ });

/** Waits until the map has been painted. */
async function painted(page: Page): Promise<void> {
  await page.waitForFunction(() => {
    const canvas = document.querySelector<HTMLCanvasElement>('.fleet .map canvas');
    return canvas
      ?.getContext('2d')
      ?.getImageData(2, 2, 1, 1)
      .data.some((part) => part !== 0);
  });
}

for (const theme of ['light', 'dark']) {
  test(`fleet shows every card, ${theme}`, async ({ page }) => {
    await tellFleet(page, { hosts: 32, cards: 8 });
    await page.goto(`${stories.url}/fleet?theme=${theme}&cell=host-3%2F1`);
    await painted(page);
    await expect(page.getByRole('region', { name: 'The selected card' })).toContainText('63 peers');
    await expect(page.locator('[data-lane="clock"] .reads')).toContainText('peers');
    await page.screenshot({ path: `screenshots/fleet-${theme}.png` });
    await clean(page);
  });

  test(`the page of a card, ${theme}`, async ({ page }) => {
    await tellFleet(page, { hosts: 32, cards: 8 });
    await page.goto(`${stories.url}/fleet/host-3/1?theme=${theme}`);
    await expect(page.locator('[data-lane="clock"] .reads')).toContainText('peers');
    await expect(page.getByRole('region', { name: 'Table of counters' })).toContainText('row remap pending');
    await page.screenshot({ path: `screenshots/gpu-${theme}.png`, fullPage: true });
    await clean(page);
  });

  test(`a fleet without nodes says how to begin, ${theme}`, async ({ page }) => {
    await tellFleet(page, null);
    await page.goto(`${stories.url}/fleet?theme=${theme}`);
    await expect(page.getByText('No node reports yet')).toBeVisible();
    await expect(page.getByText(`truegauge agent --server ${stories.url}`)).toBeVisible();
    await page.screenshot({ path: `screenshots/fleet-empty-${theme}.png` });
    await clean(page);
  });

  test(`hostile names stay text, ${theme}`, async ({ page }) => {
    const dialogs: string[] = [];
    page.on('dialog', (dialog) => {
      dialogs.push(dialog.message());
      void dialog.dismiss();
    });
    await tellFleet(page, { hosts: 32, cards: 8, hostile: true });
    await page.goto(`${stories.url}/fleet?theme=${theme}&group=job`);
    await painted(page);
    const first = page.getByRole('article', { name: /Fell off the bus/ });
    await first.getByRole('button', { name: 'Evidence' }).click();
    await expect(first).toContainText('user space');
    await expect(first).toContainText('\\u001b[31m');
    await expect(page.getByRole('article', { name: /img src=x/ })).toContainText(HOSTILE.slice(0, 20));
    await page.screenshot({ path: `screenshots/fleet-hostile-${theme}.png` });
    await clean(page);
    expect(dialogs).toEqual([]);
  });
}

test('above 64 hosts rows are low, above 256 they are one strip until opened', async ({ page }) => {
  await tellFleet(page, { hosts: 100, cards: 8 });
  await page.goto(`${stories.url}/fleet?theme=dark`);
  await painted(page);
  await page.screenshot({ path: 'screenshots/fleet-100-dark.png' });
  const tall = (await map(page).boundingBox())!.height;
  expect(tall).toBe(100 * 8);
  await page.unrouteAll({ behavior: 'wait' });
  await tellFleet(page, { hosts: 2048, cards: 8 });
  await page.goto(`${stories.url}/fleet?theme=dark&w=1`);
  await expect(map(page)).toHaveAccessibleName(/16,384 GPUs/);
  await painted(page);
  await page.screenshot({ path: 'screenshots/fleet-2048-dark.png' });
  await map(page).click({ position: { x: 100, y: 20 } });
  await expect.poll(async () => (await map(page).boundingBox())!.height).toBe(2048 * 8 + 12);
  await page.screenshot({ path: 'screenshots/fleet-2048-open-dark.png' });
});

test('the map is a table, too', async ({ page }) => {
  await tellFleet(page, { hosts: 32, cards: 8 });
  await page.goto(`${stories.url}/fleet?theme=light`);
  await painted(page);
  await page.keyboard.press('v');
  const table = page.getByRole('region', { name: 'Table of cards' });
  await expect(table.getByRole('row')).toHaveCount(257);
  await expect(table.getByRole('row', { name: /host-22/ }).nth(5)).toContainText('absent');
  await clean(page);
});

test('whoever may not follow the fleet reads it all the same', async ({ page }) => {
  await tellFleet(page, { hosts: 4, cards: 8 });
  let asked = 0;
  await page.route(/\/api\/tg\/v1\/stream/, (route) => {
    asked += 1;
    return route.fulfill({ status: 403, json: { error: { code: 'forbidden', message: 'of one project' } } });
  });
  await page.goto(`${stories.url}/fleet`);
  await painted(page);
  await expect.poll(() => asked).toBe(1);
  await expect(page.locator('.lost')).toHaveCount(0);
});
