/** A server that has no run yet. */
import { expect, test } from './fixture';
import { curve, Writer } from './push';

test.use({ world: 'empty' });

test('an empty server shows how to start, and the first run by itself', async ({ page, server }) => {
  await page.goto(server.url);
  await expect(page).toHaveURL(/\/runs$/);
  await expect(page.getByText('import truegauge as tg')).toBeVisible();
  await expect(page.getByText(`TRUEGAUGE_URL=${server.url}`)).toBeVisible();
  await expect(page.getByText('waiting for the first point')).toBeVisible();
  const now = Date.now();
  await new Writer(server.url).push({
    organization: 'acme',
    workspace: 'research',
    project: 'llm',
    run: 'first',
    event: 1,
    tags: ['7b'],
    series: [{ name: 'loss', points: curve(100, now, (s) => 3 - s / 50) }],
  });
  await expect(page.getByRole('row', { name: /first/ })).toContainText('1.020');
  await expect(page.locator('.spark path').first()).toHaveAttribute('d', /L/);
});

test('a fleet without nodes says how to begin', async ({ page, server }) => {
  await page.goto(`${server.url}/fleet`);
  await expect(page.getByText('No node reports yet')).toBeVisible();
  await expect(page.getByText(`truegauge agent --server ${server.url}`)).toBeVisible();
});

test('a server without engines says how to begin', async ({ page, server }) => {
  await page.goto(`${server.url}/inference`);
  await expect(page.getByText('No engine is scraped yet')).toBeVisible();
  await expect(page.getByText('truegauge up --scrape http://engine-0:8000/metrics')).toBeVisible();
  await expect(page.getByText(`${server.url}/api/v1/write`)).toBeVisible();
});
