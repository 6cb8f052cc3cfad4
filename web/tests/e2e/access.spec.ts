/** For who can't see, use a mouse, or has no token. */
import { clean } from './axe';
import { card, expect, openCharts, runId, test, words } from './fixture';
import { curve, Writer } from './push';
import { fits } from './width';

test.use({ world: 'access' });

test.beforeAll(async ({ server }) => {
  const now = Date.now();
  for (const [at, run] of ['one', 'two'].entries()) {
    const writer = new Writer(server.url);
    await writer.push({
      organization: 'acme',
      workspace: 'w',
      project: 'p',
      run,
      event: 1,
      tags: ['a', 'b'],
      attributes: { 'config/lr': '1' },
      series: [
        { name: 'loss', points: curve(50, now, (s) => (s === 20 ? Number.NaN : 1 / (1 + s))) },
        ...[0, 1, 2, 3, 4].map((rank) => ({
          name: 'per_rank',
          labels: { rank: `${rank}` },
          points: curve(50, now, (s) => s * rank),
        })),
        {
          name: 'system/cpu/utilization',
          labels: { host: 'h' },
          points: curve(50, now, () => 3).map(({ ms, value }) => ({ ms, value })),
        },
      ],
    });
    if (at === 1)
      await writer.push({
        organization: 'acme',
        workspace: 'w',
        project: 'p',
        run,
        event: 4,
        reason: 'out of memory',
      });
  }
});

for (const theme of ['light', 'dark']) {
  test(`the list is clean for axe: rows, selection, filter, keys, ${theme}`, async ({ page, server }) => {
    await page.goto(`${server.url}/runs?theme=${theme}&f=stat:x%20one`);
    await expect(page.locator('.run-link')).toHaveText(['one']);
    await clean(page);
    await page.getByRole('checkbox', { name: 'Select one' }).check();
    await page.keyboard.press('t');
    await clean(page);
    await page.keyboard.press('Escape');
    await page.keyboard.press('/');
    await page.keyboard.type('sta');
    await expect(page.getByRole('option').first()).toBeVisible();
    await clean(page);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Keys' }).click();
    await clean(page);
  });

  test(`charts and overview are clean for axe, ${theme}`, async ({ page, server }) => {
    await openCharts(
      page,
      server,
      await runId(server, 'one'),
      'loss',
      `?theme=${theme}&smooth=ema:0.9&log=1`,
    );
    await expect(card(page, 'per_rank').locator('.legend button')).toHaveCount(5);
    await clean(page);
    await card(page, 'loss')
      .getByRole('button', { name: /Actions/ })
      .click();
    await clean(page);
    await page.keyboard.press('Escape');
    await card(page, 'loss').focus();
    await page.keyboard.press('v');
    await clean(page);
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'Overview' }).click();
    await expect(page.getByText('config/lr')).toBeVisible();
    await clean(page);
  });
}

test('the empty and the missing page are clean for axe', async ({ page, server }) => {
  await page.goto(`${server.url}/no/such/page`);
  await expect(page.getByRole('heading', { name: 'No such page' })).toBeVisible();
  await clean(page);
  await page.goto(`${server.url}/r/00000000000000ff`);
  await expect(page.getByRole('alert')).toContainText('404');
  await clean(page);
});

test('a chart can be found, read and zoomed without a mouse', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, 'one'), 'loss');
  await card(page, 'loss').focus();
  await page.keyboard.press('ArrowRight');
  await expect(page.locator('.lane .flag')).toContainText('step 0');
  await page.keyboard.press('Shift+ArrowRight');
  await expect(page.locator('.lane .flag')).toContainText('step 10');
  await page.keyboard.press('+');
  await expect(words(page, 'loss')).not.toHaveAttribute('aria-label', /step 0 to step 49/);
  await page.keyboard.press('0');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 49/);
});

test('single letters can be switched off', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, 'one'), 'loss');
  await page.keyboard.press('?');
  await page.getByRole('checkbox', { name: 'Single letters act' }).uncheck();
  await page.keyboard.press('Escape');
  await page.keyboard.press('x');
  await page.keyboard.press('Shift+ArrowRight');
  await expect(page).not.toHaveURL(/axis=/);
});

test('a narrow window reflows into one column without losing anything', async ({ page, server }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  await openCharts(page, server, await runId(server, 'one'), 'loss');
  await fits(page, 320);
  await page.goto(`${server.url}/runs`);
  await expect(page.locator('.run-link').first()).toBeVisible();
  await fits(page, 320);
});
