/** Tests against the real server: one a file, started on a free port. */
import { test as base, expect, type Page } from '@playwright/test';
import { type RealServer, startServer } from './server';

/** What a test of this folder gets. */
export const test = base.extend<{ quiet: undefined }, { world: string; server: RealServer }>({
  // Each file names its world: another name is another server.
  world: ['', { option: true, scope: 'worker' }],
  server: [
    async ({ world }, use) => {
      if (!world) throw new Error('the file names no world');
      const server = await startServer();
      await use(server);
      await server.stop();
    },
    { scope: 'worker' },
  ],
  // No page of any test may fail in its script, open a dialog or ask another origin.
  quiet: [
    async ({ page, server }, use) => {
      const wrong: string[] = [];
      page.on('pageerror', (error) => wrong.push(`script: ${error.message}`));
      page.on('dialog', (dialog) => {
        wrong.push(`dialog: ${dialog.message()}`);
        void dialog.dismiss();
      });
      page.on('request', (request) => {
        if (!request.url().startsWith(server.url) && !/^(data|blob):/.test(request.url()))
          wrong.push(`foreign request: ${request.url()}`);
      });
      await use(undefined);
      expect(wrong).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };

/** The id of a run by its name. */
export async function runId(server: RealServer, name: string): Promise<string> {
  const answer = await fetch(`${server.url}/api/tg/v1/runs?limit=1000`);
  const { runs } = (await answer.json()) as { runs: { run: string; run_id: string }[] };
  const found = runs.find((r) => r.run === name);
  if (!found) throw new Error(`no run ${name} among ${runs.length}`);
  return found.run_id;
}

/** A chart's card. */
export const card = (page: Page, name: string) => page.locator(`[data-chart=${JSON.stringify(name)}]`);

/** A chart in words, as a screen reader hears it. */
export const words = (page: Page, name: string) => card(page, name).locator('.plot');

/** Opens a run's charts and waits for a chart. */
export async function openCharts(
  page: Page,
  server: RealServer,
  id: string,
  chart: string,
  query = '',
): Promise<void> {
  await page.goto(`${server.url}/r/${id}${query}`);
  await expect(card(page, chart).locator('canvas')).toBeVisible();
}
