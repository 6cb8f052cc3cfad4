/** The System tab: cards beside their peers, lanes on one axis, and reasons where there is nothing. */
import type { Locator, Page } from '@playwright/test';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { device, pushJob, report } from './machines';
import { curve, Writer } from './push';
import { remoteWrite } from './remote_write';
import type { RealServer } from './server';
import { fits } from './width';

test.use({ world: 'system' });

const HOSTILE = '<img src=x onerror=alert(1)>';
const END = Date.now() - 5000;
/** Ticks are 30 s apart; the hot card is held back from the 82nd of 120 on. */
const JOB = { ticks: 120, every: 30, endMs: END };

const lane = (page: Page, id: string) => page.locator(`[data-lane="${id}"]`);
const plot = (page: Page, id: string) => lane(page, id).locator('.plot');
const matrix = (page: Page) => page.getByRole('application');
const facts = (page: Page, name: string) => page.getByRole('region', { name });

async function openSystem(page: Page, server: RealServer, run: string, query = ''): Promise<void> {
  await page.goto(`${server.url}/o/-/-/p/r/${await runId(server, run)}/system${query}`);
}

/** Puts the pointer on a lane, at a share of its width. */
async function pointAt(over: Locator, share: number): Promise<void> {
  const box = (await over.boundingBox())!;
  await over.hover({ position: { x: box.width * share, y: 20 } });
}

test.beforeAll(async ({ server }) => {
  await pushJob(server.url, { ...JOB, run: 'job', hosts: 4, gpus: 8, hot: [2, 1], hole: [0.3, 0.4] });
  await pushJob(server.url, { ...JOB, run: 'node', hosts: 1, gpus: 4, hot: [0, 3] });
  await pushJob(server.url, { ...JOB, run: 'single', hosts: 1, gpus: 1, ticks: 20 });
  await pushJob(server.url, {
    ...JOB,
    run: 'odd',
    hosts: 2,
    gpus: 2,
    ticks: 5,
    hostName: (at) => `${HOSTILE},/${at}`,
  });
  const laptop = report({
    host: 'laptop',
    rank: null,
    driver: { absent: 'no_library', text: 'There is no libnvidia-ml.so.1.', hint: 'Install the driver.' },
    limits: {
      cgroup_mode: 'v2',
      memory_measured_at: '/sys/fs/cgroup/user.slice',
      memory_ceiling_bytes: 2 ** 34,
      cpu_measured_at: '/sys/fs/cgroup/user.slice/cpu.stat',
      cpu_capacity_cpus: 2,
    },
  });
  await new Writer(server.url).push({
    project: 'p',
    run: 'laptop',
    event: 1,
    host: 'laptop',
    attributes: { 'capture/laptop/pid-4242': JSON.stringify(laptop) },
    series: ['cpu/utilization', 'memory/utilization'].map((name) => ({
      name: `system/${name}`,
      labels: { host: 'laptop' },
      points: curve(60, END, (s) => 40 + s / 10),
    })),
  });
  await new Writer(server.url).push({
    project: 'p',
    run: 'bare',
    event: 1,
    series: [{ name: 'loss', points: curve(10, END, (s) => s) }],
  });
  // Eight cards in the node, of which the run was given two.
  const shares = report({
    host: 'shared',
    devices: Array.from({ length: 8 }, (_, gpu) => device(gpu, gpu < 2 ? {} : { role: 'not_visible' })),
  });
  await new Writer(server.url).push({
    project: 'p',
    run: 'part',
    event: 1,
    host: 'shared',
    attributes: { 'capture/shared/rank-0': JSON.stringify(shares) },
    series: ['0', '1'].map((gpu) => ({
      name: 'system/gpu/sm_clock_mhz',
      labels: { host: 'shared', gpu },
      points: curve(60, END, () => 1700),
    })),
  });
});

test('the card that stands apart is found, and who reports it', async ({ page, server }) => {
  // What is asked again, as time goes on, is no part of opening the page; nor is what the bar asks once a tab, a
  // second later.
  const asked = new Set<string>();
  page.on('request', (request) => {
    if (/\/(summary|remediation)\?brief=true$/.test(request.url())) return;
    if (request.url().includes('/api/')) asked.add(`${request.url()} ${request.postData() ?? ''}`);
  });
  await openSystem(page, server, 'job');
  await expect(matrix(page)).toHaveAttribute('aria-label', /^32 GPUs of 4 hosts/);
  const card = facts(page, 'host-3 · GPU 1');
  await expect(card).toContainText('rank 17 · pid 4017');
  await expect(card).toContainText('NVIDIA H100');
  await expect(card).toContainText('memory temperature— not supported');
  await expect(card).toContainText(/SM clock1,4\d\d peers 1,7\d\d/);
  await expect(card).toContainText('PCIe linkgen 5 × 16');
  const order = page.locator('[data-lane] h3 .name');
  await expect(order).toHaveText([
    'loss',
    'step time',
    'SM clock',
    'throttled',
    'temperature',
    'power ÷ limit',
    'tensor active',
    'DRAM active',
    'memory',
    'GPU busy',
    'CPU',
    'memory',
    'disk',
    'pressure',
    'process tree',
    'process tree',
  ]);
  await expect(lane(page, 'busy')).toContainText('Misleading alone');
  expect((await lane(page, 'busy').boundingBox())?.height).toBeLessThanOrEqual(36);
  await expect(lane(page, 'clock').locator('dt')).toHaveText(['host-3/1', 'median of 31', 'ratio', 'p1–p99']);
  await expect(lane(page, 'clock').locator('dd').nth(2)).toHaveText(/^0\.(79|80|81)$/);
  // The rank of the chosen card is the one whose steps are told apart.
  await expect(lane(page, 'step').locator('dt').first()).toHaveText('rank 17');
  await expect(plot(page, 'clock')).toHaveAttribute('aria-label', /1 gaps/);
  await expect(page.getByText(/^Source: 32 processes, every 30 s/)).toBeVisible();
  expect(asked.size).toBeLessThanOrEqual(12);
});

test('cursor and zoom are those of all lanes', async ({ page, server }) => {
  await openSystem(page, server, 'job');
  const over = lane(page, 'clock').locator('.u-over');
  await pointAt(over, 0.15);
  const clock = lane(page, 'clock').locator('dd').first();
  await expect(clock).toHaveText(/^1,7\d\d$/);
  await expect(lane(page, 'throttled').locator('dd').first()).toHaveText('0.00');
  await pointAt(over, 0.95);
  await expect(clock).toHaveText(/^1,4\d\d$/);
  await expect(lane(page, 'throttled').locator('dt').first()).toHaveText('thermal');
  await expect(lane(page, 'throttled').locator('dd').first()).toHaveText('0.44');
  await expect(facts(page, 'host-3 · GPU 1')).toContainText(/SM clock1,4\d\d/);
  await expect(page.locator('.lane .flag')).toContainText(/UTC · step 1[01]\d/);
  await pointAt(over, 0.35);
  await expect(clock).toHaveText('absent');
  const box = (await over.boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.5, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await expect(page).toHaveURL(/tfrom=\d+&tto=\d+/);
  await expect(plot(page, 'clock')).not.toHaveAttribute('aria-label', /gaps/);
  // The card was not hot yet: nobody stands apart in what is seen now.
  await expect(lane(page, 'memory').locator('dt')).toHaveText(['host-3/1', 'median of 31', 'p1–p99']);
  await page.keyboard.press('0');
  await expect(plot(page, 'loss')).toHaveAttribute('aria-label', /1 gaps/);
});

test('cards are chosen by click and by key, and the address has them', async ({ page, server }) => {
  await openSystem(page, server, 'job');
  await expect(facts(page, 'host-3 · GPU 1')).toBeVisible();
  await matrix(page).focus();
  await page.keyboard.press('ArrowRight');
  await expect(page).toHaveURL(/cell=host-3%2F2/);
  await expect(facts(page, 'host-3 · GPU 2')).toContainText('rank 18');
  await expect(page.locator('.matrix [role=status]')).toHaveText(
    /^host-3 · GPU 2: SM clock 1,7\d\d, 1\.\d\d of peers 1,7\d\d$/,
  );
  await page.keyboard.press('Shift+ArrowDown');
  await expect(page).toHaveURL(/cell=host-3%2F2%2Chost-4%2F2/);
  await expect(lane(page, 'clock').locator('dt').nth(1)).toHaveText('host-4/2');
  // The hot one is named though it is not chosen.
  await expect(lane(page, 'clock').locator('dt').nth(2)).toHaveText('host-3/1');
  await page.locator('.matrix canvas').click({ position: { x: 5, y: 5 } });
  await expect(page).toHaveURL(/cell=host-1%2F0(&|$)/);
  await page.reload();
  await expect(facts(page, 'host-1 · GPU 0')).toBeVisible();
  await page.getByLabel('Colour of the cells').selectOption({ label: 'temperature vs peers' });
  await expect(page).toHaveURL(/colour=temperature/);
  await expect(page.locator('.ramp')).toContainText('hotter 10 °C');
  await page.getByRole('button', { name: 'Peers' }).click();
  await expect(lane(page, 'clock').locator('dt')).not.toContainText(['median']);
});

test('spread, all lines and heat map are one click apart', async ({ page, server }) => {
  await openSystem(page, server, 'job');
  await expect(plot(page, 'clock')).toHaveAttribute('aria-label', /2 of 32 series/);
  await page.getByRole('button', { name: 'All lines' }).click();
  await expect(plot(page, 'clock')).toHaveAttribute('aria-label', /32 of 32 series/);
  await page.getByRole('button', { name: 'Heat map' }).click();
  await expect(page).toHaveURL(/show=map/);
  await page.reload();
  await expect(page.getByRole('button', { name: 'Heat map' })).toHaveAttribute('aria-pressed', 'true');
  // What cannot be held against peers keeps its spread.
  await lane(page, 'tree_cpu').scrollIntoViewIfNeeded();
  await expect(lane(page, 'tree_cpu').locator('dt').filter({ hasText: 'median of 31' })).toBeVisible();
  await expect(lane(page, 'clock').locator('dt')).toHaveText(['host-3/1']);
});

test('lanes are hidden, added and moved, and the usual ones need no address', async ({ page, server }) => {
  await openSystem(page, server, 'job');
  const signals = page.getByRole('button', { name: /^Signals/ });
  await expect(signals).toHaveText(/Signals 16/);
  await signals.click();
  await page.getByRole('menuitemcheckbox', { name: 'disk' }).click();
  await expect(lane(page, 'disk')).toHaveCount(0);
  await expect(page).toHaveURL(/lanes=loss/);
  await signals.click();
  await page.getByRole('menuitemcheckbox', { name: 'pcie link width' }).click();
  await expect(lane(page, 'pcie_link_width')).toBeVisible();
  await lane(page, 'memory').hover();
  await lane(page, 'memory')
    .getByRole('button', { name: /^Actions/ })
    .click();
  await page.getByRole('menuitem', { name: 'Move to the top' }).click();
  // The run's own numbers stay above.
  await expect(page.locator('[data-lane]').nth(2)).toHaveAttribute('data-lane', 'memory');
  await lane(page, 'clock').locator('header').dragTo(lane(page, 'memory').locator('header'));
  await expect(page.locator('[data-lane]').nth(2)).toHaveAttribute('data-lane', 'clock');
  await openSystem(page, server, 'job', '?lanes=busy,loss,nonsense');
  await expect(page.locator('[data-lane] h3 .name')).toHaveText(['loss', 'GPU busy']);
});

test('ticks are times, steps of those times, or time since the start', async ({ page, server }) => {
  await openSystem(page, server, 'job');
  const row = page.locator('.axis-row');
  await expect(row).toContainText('UTC');
  await expect(row.locator('.track')).toContainText(/\d\d:\d\d/);
  await page.getByRole('button', { name: 'Step', exact: true }).click();
  await expect(row).toContainText('⇄ step at that time');
  await expect(row.locator('.track span').last()).toHaveText('100');
  await expect(page).toHaveURL(/axis=step/);
  await page.getByRole('button', { name: 'Relative' }).click();
  await expect(plot(page, 'clock')).toHaveAttribute('aria-label', /after the start/);
  await expect(row).toContainText('since the start');
  await page.keyboard.press('x');
  await expect(page).not.toHaveURL(/axis=/);
});

test('a lane is a table, and a file with every point', async ({ page, server }) => {
  await openSystem(page, server, 'job');
  await expect(plot(page, 'temperature')).toHaveAttribute('aria-label', /series/);
  await lane(page, 'temperature').focus();
  await page.keyboard.press('v');
  const table = page.getByRole('dialog');
  await expect(table.getByRole('columnheader')).toHaveText(['time', 'median', 'host-3/1', 'p1–p99']);
  await page.keyboard.press('Escape');
  await lane(page, 'temperature').focus();
  const [file] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('e')]);
  expect(file.suggestedFilename()).toBe('job-system_gpu_temperature_celsius.csv');
});

test('few cards are lines of their own, and one card needs no matrix', async ({ page, server }) => {
  await openSystem(page, server, 'node');
  await expect(matrix(page)).toHaveAttribute('aria-label', /^4 GPUs of 1 host;/);
  await expect(page.getByRole('button', { name: 'All lines' })).toHaveAttribute('aria-pressed', 'true');
  await expect(lane(page, 'clock').locator('dt')).toHaveText(['GPU 3', 'GPU 0', 'GPU 1', 'GPU 2']);
  await openSystem(page, server, 'single');
  await expect(facts(page, 'host-1 · GPU 0')).toBeVisible();
  await expect(matrix(page)).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Heat map' })).toHaveCount(0);
  await expect(lane(page, 'cpu')).toContainText('of 96 CPUs');
});

test('without a GPU there are the host and the reason', async ({ page, server }) => {
  await openSystem(page, server, 'laptop');
  const why = page.getByRole('region', { name: 'No GPU series' });
  await expect(why).toContainText("there is no library of NVIDIA's driver");
  await expect(why).toContainText('Install the driver.');
  await expect(plot(page, 'cpu')).toHaveAttribute('aria-label', /lowest 40\W+%/);
  await expect(lane(page, 'cpu')).toContainText('of 2 CPUs');
  await expect(lane(page, 'host_memory').locator('.scope')).toHaveAttribute(
    'title',
    /of 16\.00\WGiB · measured at \/sys\/fs\/cgroup\/user.slice · cgroup v2/,
  );
  await expect(page.getByText('Scope', { exact: true })).toHaveCount(0);
  await openSystem(page, server, 'bare');
  await expect(page.getByRole('heading', { name: 'No system series yet' })).toBeVisible();
});

test('whole nodes are shown, with what the run was not given', async ({ page, server }) => {
  await openSystem(page, server, 'part');
  await expect(matrix(page)).toHaveAttribute('aria-label', /^2 GPUs/);
  await page.getByRole('button', { name: 'Whole nodes · 8' }).click();
  await expect(page).toHaveURL(/scope=nodes/);
  await expect(matrix(page)).toHaveAttribute('aria-label', /^8 GPUs/);
  await expect(page.getByText('No agent reports these nodes')).toBeVisible();
  await expect(lane(page, 'clock').locator('dt')).toHaveText(['GPU 0', 'GPU 1']);
  await matrix(page).focus();
  for (let at = 0; at < 5; at++) await page.keyboard.press('ArrowRight');
  await expect(facts(page, 'shared · GPU 5')).toContainText('not given to this run');
});

test('where agents report the nodes, whole nodes are theirs', async ({ page, server }) => {
  await pushJob(server.url, { ...JOB, run: 'watched', hosts: 1, gpus: 2, hostName: () => 'watched' });
  const start = END - (JOB.ticks - 1) * JOB.every * 1000;
  await remoteWrite(
    server.url,
    [0, 1, 2, 3].map((gpu) => ({
      labels: { __name__: 'tg_gpu_sm_clock_hertz', host: 'watched', gpu: `${gpu}`, uuid: `u${gpu}` },
      samples: Array.from({ length: JOB.ticks }, (_, at) => ({
        ms: start + at * JOB.every * 1000,
        value: gpu === 3 ? 1.2e9 : 1.7e9 + gpu * 1e6,
      })),
    })),
  );
  await openSystem(page, server, 'watched', '?scope=nodes');
  await expect(page.getByText('Source: agents of 1 host')).toBeVisible();
  await expect(matrix(page)).toHaveAttribute('aria-label', /^4 GPUs/);
  await expect(lane(page, 'clock').locator('dt')).toHaveText(['GPU 3', 'GPU 0', 'GPU 1', 'GPU 2']);
  await expect(lane(page, 'clock').locator('dd')).toHaveText(['1,200', '1,700', '1,701', '1,702']);
  await expect(lane(page, 'memory')).toContainText('the agents do not report it');
  await page.getByRole('button', { name: 'Owned by this run · 2' }).click();
  await expect(matrix(page)).toHaveAttribute('aria-label', /^2 GPUs/);
  await expect(plot(page, 'memory')).toHaveAttribute('aria-label', /2 of 2 series/);
});

test('of very many cards the server tells the spread, and the odd one is named', async ({ page, server }) => {
  const cards = Array.from({ length: 1920 }, (_, at) => ({ host: `h${at >> 3}`, gpu: `${at & 7}` }));
  const writer = new Writer(server.url);
  for (const [name, normal, odd] of [
    ['sm_clock_mhz', 1700, 1000],
    ['temperature_celsius', 60, 85],
  ] as const) {
    await writer.push({
      project: 'p',
      run: 'many',
      event: 1,
      attributes: {
        'capture/h97/rank-776': JSON.stringify(report({ host: 'h97', rank: 776, devices: [device(1)] })),
      },
      series: cards.map((labels, at) => ({
        name: `system/gpu/${name}`,
        labels,
        points: curve(10, END, (s) => (at === 777 ? odd : normal + ((at * 7 + s) % 5))),
      })),
    });
  }
  await openSystem(page, server, 'many');
  await expect(matrix(page)).toHaveAttribute('aria-label', /^1,920 GPUs of 240 hosts/);
  await expect(facts(page, 'h97 · GPU 1')).toContainText('SM clock1,000 peers 1,702');
  await expect(lane(page, 'temperature').locator('dt')).toHaveText(['h97/1', 'median of 1,920', 'p1–p99']);
  await expect(lane(page, 'temperature').locator('dd')).toHaveText(['85', '62', '60–64']);
  await expect(page.getByRole('button', { name: 'All lines' })).toHaveCount(0);
  // Too many processes for all reports: that of the chosen card's host is read.
  await page.route('**/missing*', (route) =>
    route.fulfill({ json: { run_id: '', expected: 0, present: 0, missing: [] } }),
  );
  await page.reload();
  await expect(facts(page, 'h97 · GPU 1')).toContainText('rank 776');
  // Each cell is its own, 4 px high.
  await page.locator('.matrix canvas').click({ position: { x: 3, y: 4 * 97 + 2 } });
  await expect(facts(page, 'h97 · GPU 0')).toContainText('SM clock1,70');
  await expect(lane(page, 'temperature').locator('dt').first()).toHaveText('h97/0');
});

test('samples that come in later show up by themselves', async ({ page, server }) => {
  const writer = new Writer(server.url);
  const push = (count: number, value: number, first: number) =>
    writer.push({
      project: 'p',
      run: 'growing',
      event: 1,
      series: [
        {
          name: 'system/gpu/sm_clock_mhz',
          labels: { host: 'host-1', gpu: '0' },
          points: curve(count, Date.now(), () => value, first),
        },
      ],
    });
  await push(5, 1700, 0);
  await openSystem(page, server, 'growing');
  await expect(lane(page, 'clock').locator('dd')).toHaveText('1,700');
  await push(1, 1400, 5);
  await expect(lane(page, 'clock').locator('dd')).toHaveText('1,400');
  await expect(plot(page, 'clock')).toHaveAttribute('aria-label', /lowest 1,400/);
});

test('an error stays in the lanes and can be tried again', async ({ page, server }) => {
  await page.route('**/api/tg/v1/points', (route) =>
    route.fulfill({ status: 503, json: { error: { code: 'full', message: 'store is full' } } }),
  );
  await openSystem(page, server, 'job');
  await expect(page.getByRole('alert').first()).toContainText('cannot read: 503 store is full');
  await expect(matrix(page)).toBeVisible();
  await page.unroute('**/api/tg/v1/points');
  await page.getByRole('button', { name: 'Try again' }).first().click();
  await expect(page.getByRole('alert')).toHaveCount(0);
  await expect(lane(page, 'clock').locator('canvas')).toBeVisible();
});

for (const theme of ['light', 'dark']) {
  test(`the page is clean for axe, and hostile names are text, ${theme}`, async ({ page, server }) => {
    await openSystem(page, server, 'odd', `?theme=${theme}`);
    await expect(matrix(page)).toHaveAttribute('aria-label', /^4 GPUs of 2 hosts/);
    await expect(lane(page, 'clock').locator('canvas')).toBeVisible();
    await matrix(page).focus();
    await page.keyboard.press('ArrowRight');
    await expect(page.locator('.card-facts h2').first()).toContainText('<img src=x');
    await clean(page);
    await openSystem(page, server, 'job', `?theme=${theme}&show=map`);
    await expect(lane(page, 'clock').locator('canvas')).toBeVisible();
    await clean(page);
    await openSystem(page, server, 'laptop', `?theme=${theme}`);
    await expect(lane(page, 'cpu').locator('canvas')).toBeVisible();
    await clean(page);
  });
}

test('everything is there in 320 px', async ({ page, server }) => {
  await page.setViewportSize({ width: 320, height: 800 });
  await openSystem(page, server, 'job');
  await lane(page, 'clock').scrollIntoViewIfNeeded();
  await expect(lane(page, 'clock').locator('canvas')).toBeVisible();
  await fits(page, 320);
});
