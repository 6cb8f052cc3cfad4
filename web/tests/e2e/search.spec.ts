/** The search of the bar, against the real server. */
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { NodeWriter } from './node_push';
import { curve, Writer } from './push';
import { remoteWrite } from './remote_write';
import { fits } from './width';

test.use({ world: 'search' });

const HOSTILE = '<img src=x onerror=alert(1)>';

test.beforeAll(async ({ server }) => {
  const now = Date.now();
  for (const run of ['pretrain-7b', 'pretrain-70b', HOSTILE])
    await new Writer(server.url).push({
      project: 'p',
      run,
      event: 1,
      series: [{ name: 'loss', points: curve(20, now, (s) => 1 / (1 + s)) }],
    });
  await new NodeWriter(server.url, 'host-3').push(
    [
      { name: 'tg_node_gpus', labels: { source: 'pci' }, points: [{ ms: now, value: 2 }] },
      ...['0', '1'].map((gpu) => ({
        name: 'tg_gpu_info',
        labels: { gpu, uuid: `GPU-8b1a2c${gpu}`, vendor: 'nvidia', gpu_model: 'NVIDIA H100 80GB HBM3' },
        points: [{ ms: now, value: 1 }],
      })),
    ],
    [],
  );
  const engine = {
    __name__: 'tg_engine_requests_running',
    engine: 'vllm',
    model: 'acme/chat-70b',
    instance: 'a:1',
    job: 'e',
  };
  await remoteWrite(server.url, [{ labels: engine, samples: [{ ms: now, value: 3 }] }]);
});

const box = (page: Page) => page.getByRole('combobox', { name: /^Search/ });
const results = (page: Page) => page.getByRole('listbox', { name: 'Results' });

/** Opens a page whose `/` is the search's, and types. */
async function search(page: Page, url: string, words: string): Promise<void> {
  await page.goto(`${url}/remediation`);
  await expect(page.getByRole('heading', { name: 'Remediation', exact: true })).toBeVisible();
  await page.keyboard.press('/');
  await expect(box(page)).toBeFocused();
  await page.keyboard.type(words);
}

test('a run, a host, a card, a model, a rule and a page are a few keys away', async ({ page, server }) => {
  const id = await runId(server, 'pretrain-7b');
  const go: [string, RegExp, RegExp][] = [
    ['7b', /^pretrain-7b/, new RegExp(`/r/${id}/charts`)],
    ['host-3', /^host-3 ?Fleet/, /\/fleet\?f=host%3Ahost-3/],
    ['host-3 gpu 1', /^host-3 GPU 1/, /\/fleet\/host-3\/1\?uuid=GPU-8b1a2c1/],
    ['8b1a2c0', /^host-3 GPU 0/, /\/fleet\/host-3\/0/],
    ['chat', /^acme\/chat-70b/, /\/inference\/acme%2Fchat-70b/],
    ['stragglerpage', /^StragglerPage ?alert/, /\/alerts\?tab=rules&rule=StragglerPage/],
    ['roof', /^Calculator roofline/, /\/calc\/roofline/],
  ];
  for (const [words, name, url] of go) {
    await search(page, server.url, words);
    await expect(results(page).getByRole('option', { selected: true })).toHaveText(name);
    await page.keyboard.press('Enter');
    await expect(page).toHaveURL(url);
    await expect(results(page)).toHaveCount(0);
  }
});

test('arrows choose, Escape clears and then leaves, and a click goes there', async ({ page, server }) => {
  await search(page, server.url, 'pretrain');
  const option = results(page).getByRole('option');
  await expect(option).toHaveCount(2);
  const second = (await option.nth(1).textContent()) ?? '';
  await page.keyboard.press('ArrowDown');
  await expect(results(page).getByRole('option', { selected: true })).toHaveText(second);
  await page.keyboard.press('Escape');
  await expect(results(page)).toHaveCount(0);
  await expect(box(page)).toHaveValue('');
  await expect(box(page)).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(box(page)).not.toBeFocused();
  await page.keyboard.press('/');
  await page.keyboard.type(HOSTILE.slice(0, 9));
  await expect(option).toHaveText([new RegExp(`^${HOSTILE.slice(0, 9)}`)]);
  await option.first().click();
  await expect(page.getByRole('heading', { name: HOSTILE })).toBeVisible();
});

test('a page with a filter keeps its /, and Ctrl+K still searches', async ({ page, server }) => {
  await page.goto(`${server.url}/runs?theme=dark`);
  await expect(page.getByRole('row', { name: /pretrain-7b/ })).toBeVisible();
  await page.keyboard.press('/');
  await expect(page.getByRole('combobox', { name: 'Filter' })).toBeFocused();
  await page.keyboard.press('Control+k');
  await expect(box(page)).toBeFocused();
  await page.keyboard.type('explore');
  await expect(results(page).getByRole('option', { selected: true })).toHaveText(/^Explore/);
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/explore\?theme=dark/);
});

for (const theme of ['light', 'dark'])
  test(`it is clean for axe, fits 390 px, and says when there is nothing, ${theme}`, async ({
    page,
    server,
  }) => {
    await page.goto(`${server.url}/calc?theme=${theme}`);
    await box(page).focus();
    await expect(results(page).getByRole('option')).toHaveCount(7);
    await clean(page);
    await box(page).fill('pretrain-7');
    await expect(results(page).getByRole('option')).toHaveCount(2);
    await clean(page);
    await page.setViewportSize({ width: 390, height: 800 });
    const outside = async () => {
      const panel = (await page.locator('.search .popover').boundingBox())!;
      return Math.max(-panel.x, panel.x + panel.width - 390);
    };
    await expect.poll(outside).toBeLessThanOrEqual(0);
    await fits(page, 390);
    await box(page).fill('no such thing');
    await expect(page.getByText('No run, model, host, GPU, rule or page has “no such thing”.')).toBeVisible();
    await clean(page);
  });
