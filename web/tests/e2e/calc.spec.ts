/** The Calculators page, answered by the real server. */
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { expect, test } from './fixture';
import { curve, Writer } from './push';
import { fits } from './width';

const THIN = '\u2009';
const HOSTILE = '<img src=x onerror=alert(1)>';

test.use({ world: 'calculators' });

const figures = (page: Page) => page.getByLabel('Figures');
const field = (page: Page, name: string) => page.getByRole('textbox', { name, exact: true });

test('an example fills the form and the address, and is answered with its grounds and the same command', async ({
  page,
  server,
}) => {
  await page.goto(`${server.url}/calc`);
  await expect(page.getByText('Fill in what you know')).toBeVisible();
  await page.getByRole('button', { name: 'Example' }).click();
  await expect(page).toHaveURL(/params=8.03e9/);
  await expect(figures(page)).toContainText('Batch max');
  const first = page.getByRole('region', { name: 'Table of cases' }).locator('tbody tr').first();
  await expect(first).toContainText(`4.874${THIN}ms`);
  await expect(page.getByRole('img', { name: /^Roofline: / })).toBeVisible();
  await expect(page.locator('.scene .row')).toHaveCount(5);
  await expect(page.getByRole('region', { name: 'What this stands on' })).toContainText('bandwidth is ideal');
  await expect(page.locator('.command code')).toContainText('truegauge calc roofline --params 8030000000');
  await page.reload();
  await expect(first).toContainText(`4.874${THIN}ms`);
});

test('what cannot be is said at its input, and what is missing is asked for', async ({ page, server }) => {
  await page.goto(`${server.url}/calc/mfu?params=70e9&tokens_per_second=782446&gpus=1024&peak=989e12`);
  await expect(figures(page)).toContainText(`32.4${THIN}%`);
  await field(page, 'GPUs').fill('-1');
  await expect(page.getByRole('alert')).toContainText('has to be above 0');
  await expect(field(page, 'GPUs')).toHaveAttribute('aria-invalid', 'true');
  await expect(figures(page)).toHaveCount(0);
  await field(page, 'GPUs').fill('1024');
  await expect(figures(page)).toContainText(`32.4${THIN}%`);
  await page.goto(`${server.url}/calc/roofline?params=8e9`);
  await expect(page.locator('.field', { hasText: 'Layers' })).toContainText(/needed|missing/);
});

test('what is not known is absent with its reason', async ({ page, server }) => {
  await page.goto(`${server.url}/calc/mfu?params=70e9&tokens_per_second=782446&gpus=1024&gpu=X900`);
  await expect(figures(page).locator('.missing').first()).toContainText('X900');
});

test('rows of a file are pasted, and a bad line is named', async ({ page, server }) => {
  await page.goto(`${server.url}/calc/stream`);
  const rows = page.locator('#calc-times');
  await rows.fill('0.42\n0.445\nx\n');
  await expect(page.getByRole('alert')).toContainText('line 3');
  await rows.fill('0.42\n0.445\n2.47\n');
  await expect(figures(page)).toContainText(`TTFT420${THIN}ms`);
});

test('a run fills what is known of it', async ({ page, server }) => {
  const writer = new Writer(server.url);
  await writer.push({
    run: HOSTILE,
    attributes: { 'model/params': '7e9', 'model/layers': '32' },
    series: [{ name: 'loss', points: curve(10, Date.now(), (s) => 3 - s / 10) }],
  });
  await page.goto(`${server.url}/calc/mfu`);
  await page.getByRole('combobox', { name: 'From a run' }).selectOption({ label: HOSTILE });
  await expect(page).toHaveURL(/params=7000000000/);
  await expect(field(page, 'Params')).toHaveValue('7000000000');
});

test('an unknown calculator is none, and one that cannot be reached says so', async ({ page, server }) => {
  await page.goto(`${server.url}/calc/horoscope`);
  await expect(page.getByRole('heading', { name: 'No such calculator' })).toBeVisible();
  await page.route('**/api/tg/v1/calc', (route) =>
    route.fulfill({ status: 503, json: { error: { message: 'busy' } } }),
  );
  await page.goto(`${server.url}/calc/mfu`);
  await expect(page.getByRole('alert')).toContainText('cannot read: 503 busy');
  await page.unroute('**/api/tg/v1/calc');
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(field(page, 'Params')).toBeVisible();
});

test('keys turn from one calculator to the next', async ({ page, server }) => {
  await page.goto(`${server.url}/calc/roofline`);
  await expect(field(page, 'Params')).toBeVisible();
  await page.keyboard.press(']');
  await expect(page).toHaveURL(/\/calc\/stream/);
  await page.keyboard.press('[');
  await expect(page).toHaveURL(/\/calc\/roofline/);
  await page.keyboard.press('/');
  await expect(page.locator('.form .field :focus')).toHaveCount(1);
});

test('a narrow window scrolls down only', async ({ page, server }) => {
  await page.setViewportSize({ width: 400, height: 900 });
  await page.goto(`${server.url}/calc/roofline`);
  await page.getByRole('button', { name: 'Example' }).click();
  await expect(page.locator('.scene')).toBeVisible();
  // The plot is as wide as its place, once that is known.
  await fits(page, 400);
});

for (const theme of ['light', 'dark'])
  for (const tool of ['roofline', 'mfu', 'economics', 'goodput', 'ettr', 'capacity', 'stream'])
    test(`${tool} answers its example and is accessible, ${theme}`, async ({ page, server }) => {
      await page.goto(`${server.url}/calc/${tool}?theme=${theme}`);
      await page.getByRole('button', { name: 'Example' }).click();
      await expect(figures(page)).toBeVisible();
      await expect(page.getByRole('alert')).toHaveCount(0);
      await clean(page);
      await page.screenshot({ path: `screenshots/calc-${tool}-${theme}.png`, fullPage: true });
    });
