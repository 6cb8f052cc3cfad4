/** The Inference page, read from the real server: engines that it scrapes, with two hours before. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { type Engine, history, type Served, serve } from './engine';
import { test as base, expect } from './fixture';
import { NodeWriter } from './node_push';
import { remoteWrite } from './remote_write';
import { type RealServer, startServer } from './server';
import { fits } from './width';

const HOSTILE = '<img src=x onerror=alert(1)>\u202e';
const MINUTE = 60_000;
const NOW = Date.now();
/** How long before now users of the large model began to wait, and a replica began anew. */
const SLOW = NOW - 30 * MINUTE;
const RESTART = NOW - 70 * MINUTE;

const after = (time: number, from: number, to: number) => (now: number) => (now < time ? from : to);

/** The engines by the name of their pod. */
const ENGINES: Record<string, Engine> = {
  'chat-0': {
    model: 'acme/chat-70b',
    rate: 4,
    running: 31,
    waiting: after(SLOW, 0, 19),
    kv: after(SLOW, 0.6, 0.9),
    slowAt: SLOW,
  },
  'chat-1': {
    model: 'acme/chat-70b',
    rate: 4,
    running: 33,
    waiting: () => 0,
    kv: (now) => 0.5 + 0.05 * Math.sin(now / 400_000),
    restartedAt: RESTART,
  },
  'code-0': { model: 'acme/code-8b', rate: 9, running: 12, waiting: () => 0, kv: () => 0.2 },
  'code-1': { model: 'acme/code-8b', rate: 9, running: 0, waiting: () => 0, kv: () => 0.1 },
  'draft-0': { model: '', rate: 0.5, running: 1, waiting: () => 0, kv: () => 0 },
  'odd-0': { model: HOSTILE, rate: 1, running: 2, waiting: () => 0, kv: () => 0.3 },
};

/** What the site is told of: prices, what is promised, and cards that nobody else tells of. */
const SITE = [
  ['--site-prices', 'h100-sxm=2.50'],
  ['--site-price-revision', '14'],
  ['--site-objectives', 'acme/chat-70b ttft=2.5 itl=0.1 goodput=0.95'],
  ['--site-objectives', 'acme/code-8b ttft=2.5 goodput=0.5'],
  ['--site-engine-gpus', 'acme/code-8b=h100-sxm*2'],
].flat();

/** What a target's discovery would add. */
const targetOf = (pod: string) => ({ job: 'engines', namespace: 'serving', pod });

/** The cards of the large model: busy all the time, and mostly waiting for memory. */
async function tellCards(url: string): Promise<void> {
  const agent = new NodeWriter(url, 'infer-0', 10 * MINUTE);
  // An owner is told once a look.
  for (let ms = NOW - 5 * MINUTE; ms <= NOW; ms += 20_000)
    await agent.push(
      ['chat-0', 'chat-1'].flatMap((pod, gpu) => cardOf(pod, gpu, ms)),
      [],
      ms,
    );
}

function cardOf(pod: string, gpu: number, ms: number) {
  const labels = { gpu: String(gpu), uuid: `GPU-aa0${gpu}` };
  const one = (name: string, value: number, more: Record<string, string> = {}) => ({
    name,
    labels: { ...labels, ...more },
    points: [{ ms, value }],
  });
  return [
    one('tg_gpu_busy_ratio', 1),
    one('tg_gpu_tensor_active_ratio', 0.031),
    one('tg_gpu_dram_active_ratio', 0.78),
    one('tg_gpu_power_watts', 420),
    one('tg_gpu_power_limit_watts', 700),
    one('tg_gpu_owner_info', 1, { namespace: 'serving', pod, confidence: 'certain' }),
  ];
}

const served: Record<string, Served> = {};

const test = base.extend<object, { server: RealServer }>({
  server: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright wants a pattern.
    async ({}, use) => {
      for (const [pod, engine] of Object.entries(ENGINES)) served[pod] = await serve(engine);
      const folder = mkdtempSync(join(tmpdir(), 'truegauge-engines-'));
      const targets = Object.entries(served).map(
        ([pod, { address }]) =>
          `      - targets: ["${address}"]\n        labels: {namespace: serving, pod: ${pod}}\n`,
      );
      const config = join(folder, 'scrape.yml');
      // Nothing listens on the discard port: whether that was an engine, nobody knows.
      writeFileSync(
        config,
        `scrape_configs:\n  - job_name: engines\n    scrape_interval: 1s\n    scrape_timeout: 1s\n    static_configs:\n${targets.join('')}      - targets: ["127.0.0.1:9"]\n`,
      );
      const server = await startServer(['--scrape-config', config, ...SITE]);
      for (const [pod, one] of Object.entries(served))
        await remoteWrite(server.url, history(one, targetOf(pod), [NOW - 120 * MINUTE, NOW, 20_000]));
      await tellCards(server.url);
      ENGINES['code-1'].broken = [503, `<b>loading weights</b> ${HOSTILE}`];
      await use(server);
      await server.stop();
      for (const { server: one } of Object.values(served)) one.close();
      rmSync(folder, { recursive: true, force: true });
    },
    { scope: 'worker' },
  ],
});

test.use({ world: 'inference' });

const row = (page: Page, name: string | RegExp) =>
  page.getByRole('region', { name: 'Table of models' }).getByRole('row', { name });
const chart = (page: Page, id: string) => page.locator(`[data-chart="${id}"]`);
const vocabulary = (page: Page) => page.getByRole('region', { name: 'Vocabulary' });

async function openModel(page: Page, server: RealServer, path = '', query = ''): Promise<void> {
  await page.goto(`${server.url}/inference${path}?from=-2h${query}`);
  await expect(chart(page, 'load').locator('canvas')).toBeVisible();
}

test('the table tells of each model what its users get; what is not known is a dash with its reason', async ({
  page,
  server,
}) => {
  await openModel(page, server);
  await expect(page.locator('.page-bar .facts')).toHaveText('4 models · 6 engine targets');
  const chat = row(page, /acme\/chat-70b/);
  await expect(chat).toContainText('2 / 2');
  await expect(chat).toContainText('memory-bound');
  // 31 and 33 run, 19 wait, 8 requests a second with 150 tokens each.
  for (const number of ['64', '19']) await expect(chat.getByText(number, { exact: true })).toBeVisible();
  await page
    .getByRole('columnheader', { name: /TTFT p95/ })
    .getByRole('button')
    .click();
  await expect(page).toHaveURL(/sort=-ttft_p95/);
  await expect(page.getByRole('columnheader', { name: /TTFT p95/ })).toHaveAttribute(
    'aria-sort',
    'descending',
  );
  const draft = row(page, /no model name/);
  await expect(draft).toContainText('no histograms');
  await expect(draft.locator('.absent').first()).toHaveAttribute('title', /llamacpp sent no tg_engine|pod/);
});

test('a model is memory-bound whatever busy says, and shows the numbers', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fchat-70b');
  const verdict = page.getByRole('region', { name: 'Verdict' });
  await expect(verdict).toContainText('acme/chat-70b is memory-bound, whatever “busy” says.');
  await expect(verdict).toContainText('tensor cores worked 3 %');
  await verdict.getByRole('button', { name: 'Evidence' }).click();
  await expect(verdict).toContainText('tg_gpu_dram_active_ratio');
  await expect(verdict).toContainText('78\u2009%');
});

test('charts hold the two hours: users began to wait, a replica began anew', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fchat-70b');
  const words = (id: string) => chart(page, id).locator('.plot');
  await expect(words('ttft')).toHaveAttribute('aria-label', /3 of 3 series/);
  await expect(chart(page, 'ttft').locator('.readout')).toHaveText([/^p50/, /^p95/, /^p99/]);
  await expect(chart(page, 'ttft').locator('.readout').last()).toHaveAttribute(
    'title',
    /somewhere between 2\.50 and 5 s/,
  );
  await expect(words('kv')).toHaveAttribute('aria-label', /highest 0\.9/);
  await expect(chart(page, 'itl').locator('.badge', { hasText: 'log' })).toBeVisible();
  await expect(chart(page, 'finished')).toContainText('stop');
  const lane = page.getByRole('region', { name: 'Events of the model' });
  // The server tells of the restart; that a counter shows it too is no second event.
  await expect(lane.locator('.event')).toHaveCount(1);
  await expect(lane.locator('.event')).toHaveAttribute('title', new RegExp(served['chat-1'].address));
  await expect(lane).not.toContainText('events');
});

test('a target that is down keeps its place, with what the last scrape met', async ({ page, server }) => {
  await openModel(page, server);
  await expect(row(page, /acme\/code-8b/)).toContainText('1 / 2');
  await expect(page.locator('.page-bar')).toContainText('1 target down');
  const down = page.getByRole('region', { name: 'Targets down' });
  await expect(down).toContainText(served['code-1'].address);
  await expect(down).toContainText('503');
  await expect(down).toContainText('http://127.0.0.1:9/metrics');
  await expect(down).toContainText('never answered');
});

test('keys move over the models and split them; the address holds all of it', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fchat-70b');
  await page.keyboard.press('s');
  const replicas = page.getByRole('region', { name: 'Replicas' });
  await expect(replicas.locator('li')).toHaveCount(2);
  await replicas.getByRole('button', { name: 'waiting', exact: true }).click();
  await expect(replicas.locator('li').first()).toContainText(served['chat-0'].address);
  await expect(page).toHaveURL(/split=replicas/);
  await expect(page).toHaveURL(/by=waiting/);
  await page.reload();
  await expect(replicas.locator('li').first()).toContainText('19');
  await page.keyboard.press('j');
  await expect(page).toHaveURL(/\/inference\/(?!acme%2Fchat-70b)/);
  await page.goBack();
  await expect(page).toHaveURL(/\/inference\/acme%2Fchat-70b/);
  await row(page, /acme\/code-8b/).click({ modifiers: ['Shift'], position: { x: 300, y: 10 } });
  await expect(page).toHaveURL(/code-8b\?.*split=replicas/);
  await expect(replicas.locator('li').first()).toContainText('down: ');
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog')).toContainText('One small chart for each replica');
});

test('the vocabulary says what matched, what is unknown, what is missing', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fchat-70b');
  const panel = vocabulary(page);
  await expect(panel).toContainText('vLLM');
  await panel.getByRole('button', { name: '1 unknown' }).click();
  await expect(panel.locator('tbody tr')).toHaveText(/vllm:novel_feature_total.*kept as it came, not mapped/);
  await panel.getByRole('button', { name: 'all' }).click();
  await page.keyboard.press('Escape');
  await panel.getByRole('searchbox').fill('kv_cache');
  await expect(panel.locator('tbody tr').first()).toContainText('tg_engine_kv_usage_ratio');
  await expect(page).toHaveURL(/q=kv_cache/);
});

test('the page follows what is scraped', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fcode-8b');
  ENGINES['code-0'].running = 77;
  await expect(row(page, /acme\/code-8b/).getByText('77', { exact: true })).toBeVisible({ timeout: 30_000 });
});

test('a part of the time is zoomed into and left again', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fchat-70b');
  const plot = (await chart(page, 'load').locator('.u-over').boundingBox())!;
  await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 40);
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width * 0.8, plot.y + 40, { steps: 4 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=\d+&to=\d+/);
  await page.keyboard.press('0');
  await expect(page).toHaveURL(/from=-2h/);
});

test('a chart’s question can be asked in Explore', async ({ page, server }) => {
  await openModel(page, server, '/acme%2Fchat-70b');
  await chart(page, 'ttft').getByRole('button', { name: 'Actions of TTFT' }).click();
  await page.getByRole('menuitem', { name: /Open in Explore/ }).click();
  await expect(page).toHaveURL(/\/explore/);
  await expect(page.locator('[data-query="A"] canvas')).toBeVisible();
});

test('objectives and money: what misses is bold, with idle time leads, and the roofline is filled from the engine', async ({
  page,
  server,
}) => {
  await openModel(page, server, '/acme%2Fcode-8b');
  await expect(page.getByText(/Objectives: TTFT 2.50 s · goodput 0\.50/)).toBeVisible();
  const code = row(page, /acme\/code-8b/);
  await expect(code.locator('td.strong').filter({ hasText: '$' })).toHaveText(/\$\u2009\d/, {
    timeout: 45_000,
  });
  await expect(page.getByText(/prices of revision 14/)).toBeVisible();
  await expect(code.locator('td.goodput')).toHaveText(/^0\.\d\d(–0\.\d\d)?$/);
  await expect(row(page, /acme\/chat-70b/).locator('td.crit.strong')).toHaveCount(2);
  await expect(chart(page, 'goodput').locator('.badge')).toHaveText('bounds');
  await page.getByRole('link', { name: 'Roofline' }).click();
  await expect(page).toHaveURL(/\/calc\/roofline\?.*engine=acme%2Fcode-8b/);
  await expect(page.getByRole('textbox', { name: 'Batch', exact: true })).toHaveValue(/^1,8/);
  const given = { Params: '8.03e9', Layers: '32', 'KV heads': '8', 'Head dim': '128', Context: '2048' };
  for (const [name, value] of Object.entries(given))
    await page.getByRole('textbox', { name, exact: true }).fill(value);
  await page.getByRole('combobox', { name: 'GPU', exact: true }).fill('h100-sxm');
  await expect(page.locator('.scene circle.seen')).toHaveCount(1);
  await expect(page.getByText(/^Measured: /)).toContainText('of what the roof allows at the same batch');
  await clean(page);
  await page.screenshot({ path: 'screenshots/calc-measured-light.png', fullPage: true });
});

test('a model that nobody serves is none', async ({ page, server }) => {
  await page.goto(`${server.url}/inference/nobody`);
  await expect(page.getByRole('heading', { name: 'No such model' })).toBeVisible();
  await page.getByRole('link', { name: 'All models' }).click();
  await expect(page).toHaveURL(/\/inference$/);
});

test('a narrow window scrolls down, and only tables scroll in themselves', async ({ page, server }) => {
  await page.setViewportSize({ width: 400, height: 900 });
  await openModel(page, server, '/acme%2Fchat-70b', '&split=replicas');
  await expect(vocabulary(page).locator('tbody tr').first()).toBeVisible();
  await fits(page, 400);
});

test('what cannot be read is said where it would be, and the rest stays', async ({ page, server }) => {
  await page.route('**/api/v1/query_range', (route) =>
    route.fulfill({
      status: 503,
      json: { status: 'error', errorType: 'timeout', error: 'other queries took all turns' },
    }),
  );
  await page.goto(`${server.url}/inference/acme%2Fchat-70b?from=-2h`);
  await expect(page.getByRole('alert')).toContainText('cannot read: 503');
  await expect(row(page, /acme\/chat-70b/)).toContainText('2 / 2');
  await page.unroute('**/api/v1/query_range');
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(chart(page, 'load').locator('canvas')).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(0);
});

for (const theme of ['light', 'dark']) {
  test(`the page is accessible and looks as designed, ${theme}`, async ({ page, server }) => {
    await openModel(page, server, '/acme%2Fchat-70b', `&theme=${theme}`);
    await expect(vocabulary(page).locator('tbody tr').first()).toBeVisible();
    await page.screenshot({ path: `screenshots/inference-${theme}.png` });
    await clean(page);
    await page.keyboard.press('s');
    await expect(page.getByRole('region', { name: 'Replicas' }).locator('li')).toHaveCount(2);
    await page.getByRole('button', { name: 'Evidence' }).click();
    await clean(page);
    await page.screenshot({ path: `screenshots/inference-replicas-${theme}.png`, fullPage: true });
  });

  test(`hostile names stay text, and an engine without histograms says so, ${theme}`, async ({
    page,
    server,
  }) => {
    await openModel(page, server, `/${encodeURIComponent(HOSTILE)}`, `&theme=${theme}`);
    await expect(page.getByRole('region', { name: 'Verdict' })).toContainText('<img src=x');
    await expect(page.getByRole('region', { name: 'Verdict' })).toContainText('\\u202e');
    await clean(page);
    await openModel(page, server, '/-', `&theme=${theme}`);
    await expect(chart(page, 'ttft').locator('.none')).toContainText(
      '— unknown: llamacpp sent no tg_engine_ttft_seconds',
    );
    await page.screenshot({ path: `screenshots/inference-unknown-${theme}.png`, fullPage: true });
    await clean(page);
  });
}
