/** The Missing tab and the capture panel: why a chart is not there, and who reports what. */
import type { Page } from '@playwright/test';
import type { MissingAnswer } from '../../src/lib/missing';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { device, pushJob, report } from './machines';
import { curve, Writer } from './push';
import type { RealServer } from './server';
import { fits } from './width';

test.use({ world: 'missing' });

const HOSTILE = '<img src=x onerror=alert(1)>';
const END = Date.now() - 5000;

const tab = (page: Page) => page.getByRole('navigation', { name: 'Tabs of the run' });
const table = (page: Page, name: string) => page.getByRole('region', { name, exact: true });

async function open(page: Page, server: RealServer, run: string, where: string, query = ''): Promise<void> {
  await page.goto(`${server.url}/o/-/-/p/r/${await runId(server, run)}/${where}${query}`);
}

test.beforeAll(async ({ server }) => {
  await pushJob(server.url, { run: 'job', hosts: 2, gpus: 2, ticks: 20, every: 10, endMs: END });
  const laptop = report({
    host: HOSTILE,
    rank: null,
    driver: {
      absent: 'no_library',
      text: `There is no libnvidia-ml.so.1 ${HOSTILE}.`,
      hint: 'Install the driver.',
    },
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
    host: HOSTILE,
    attributes: { [`capture/${HOSTILE}/pid-4242`]: JSON.stringify(laptop), 'config/lr': '0.1' },
    series: [
      { name: 'loss', points: curve(20, END, () => 1) },
      { name: 'system/memory/used_bytes', labels: { host: HOSTILE }, points: curve(20, END, () => 1e9) },
    ],
  });
});

test('without a driver the GPU series are told with the reason and what to do', async ({ page, server }) => {
  await open(page, server, 'laptop', 'missing');
  const rows = page.locator('.missing-tab tbody tr');
  const gpu = rows.filter({ hasText: 'system/gpu/utilization' });
  await expect(gpu).toHaveCount(1);
  await expect(gpu).toContainText("there is no library of NVIDIA's driver");
  await expect(gpu).toContainText('Install the driver.');
  await expect(page.locator('main img')).toHaveCount(0);
  const answer = (await (
    await fetch(`${server.url}/api/tg/v1/runs/${await runId(server, 'laptop')}/missing`)
  ).json()) as MissingAnswer;
  const faults = new Set(
    answer.missing.filter((r) => r.alarm).flatMap((r) => r.metrics.map((m) => m.display)),
  );
  if (faults.size > 0) await expect(tab(page)).toContainText(`Missing ${faults.size}`);
  else await expect(tab(page).getByRole('link', { name: /^Missing$/ })).toBeVisible();
});

/** An answer that holds every kind of row. */
const ANSWER: Omit<MissingAnswer, 'run_id'> = {
  expected: 14,
  present: 11,
  cut: true,
  missing: [
    {
      reason: 'unsupported',
      text: `The card does not tell its power ${HOSTILE}.`,
      hint: 'Nothing can be done; choose another card.',
      command: 'truegauge doctor --gpu 3',
      since: END - 7_200_000,
      alarm: true,
      metrics: ['power_watts', HOSTILE].map((name) => ({ name, display: `system/gpu/${name}`, unit: 'W' })),
      places: Array.from({ length: 80 }, (_, at) => ({
        host: `host-${Math.floor(at / 8) + 1}`,
        gpu: String(at % 8),
        pid: null,
        rank: null,
      })),
    },
    {
      reason: 'other',
      text: 'Rank 3 on `host-2` reports it.',
      hint: null,
      command: null,
      since: null,
      alarm: false,
      metrics: [{ name: 'cpu', display: 'system/cpu/utilization', unit: '%' }],
      places: [{ host: 'host-2', gpu: null, pid: '7', rank: '4' }],
    },
  ],
  capture: [],
};

async function stub(page: Page, answer: object, status = 200): Promise<void> {
  await page.route('**/runs/*/missing*', (route) => route.fulfill({ status, json: answer }));
}

test('faults are counted and listed by reason; what is no fault stands apart', async ({ page, server }) => {
  await stub(page, { run_id: 'r', ...ANSWER });
  await open(page, server, 'job', 'charts');
  await expect(tab(page).getByRole('link', { name: 'Missing 2' })).toBeVisible();
  await tab(page)
    .getByRole('link', { name: /Missing/ })
    .click();
  await expect(page.locator('.verdict')).toContainText(
    '2 series are missing of 14 that autocapture promises; 11 are there',
  );
  const fault = table(page, 'Missing').getByRole('row').nth(1);
  await expect(fault).toContainText('80 GPUs on 10 hosts');
  await expect(fault).toContainText('host-1 · GPU 0–7');
  await expect(fault).toContainText('2 h 00 min');
  await expect(fault).not.toContainText('host-10');
  await fault.getByRole('button', { name: '6 more hosts' }).click();
  await expect(fault).toContainText('host-10 · GPU 0–7');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await fault.getByRole('button', { name: 'Copy' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('truegauge doctor --gpu 3');
  const calm = table(page, 'No fault').getByRole('row').nth(1);
  await expect(calm).toContainText('Rank 3 on host-2 reports it.');
  await expect(calm.locator('code')).toHaveText('host-2');
  await expect(calm).toContainText('rank 4');
  await expect(page.getByText('There is more than is listed here')).toBeVisible();
  await expect(page.locator('main img')).toHaveCount(0);
});

test('a chart that has no series says why in its place', async ({ page, server }) => {
  await stub(page, { run_id: 'r', ...ANSWER });
  await open(page, server, 'job', 'charts');
  const absent = page.getByRole('region', { name: 'system/gpu/power_watts: absent' });
  await expect(absent).toContainText('Absent: The card does not tell its power <img src=x');
  await expect(absent).toContainText('truegauge doctor --gpu 3');
  await expect(page.locator('.absent-card')).toHaveCount(2);
  await expect(page.locator('main img')).toHaveCount(0);
  await clean(page);
  await absent.getByRole('link', { name: 'Why is it missing?' }).click();
  await expect(page).toHaveURL(/\/missing$/);
});

test('nothing missing is said with what was counted', async ({ page, server }) => {
  await stub(page, { run_id: 'r', expected: 14, present: 14, missing: [], capture: [] });
  await open(page, server, 'job', 'missing');
  await expect(page.locator('.verdict')).toContainText(
    /Nothing is missing\. \d+ series, all sources answer\./,
  );
  await page.unroute('**/runs/*/missing*');
  await stub(page, { run_id: 'r', expected: 14, present: 14, missing: [ANSWER.missing[1]], capture: [] });
  await page.reload();
  await expect(page.locator('.verdict')).toContainText(
    /Nothing fails\. \d+ series; what single places do not/,
  );
  await page.unroute('**/runs/*/missing*');
  await stub(page, { run_id: 'r', expected: 14, present: 8, missing: [ANSWER.missing[1]], capture: [] });
  await page.reload();
  await expect(page.locator('.verdict')).toContainText('Nothing fails. 8 of 14 series');
  await expect(tab(page).getByRole('link', { name: 'Missing' })).toHaveText('Missing');
});

test('a server that cannot tell, and one that fails, say so', async ({ page, server }) => {
  await stub(page, { error: { code: 'not_found', message: 'no such thing' } }, 404);
  await open(page, server, 'job', 'missing');
  await expect(page.getByText('This server does not tell why a series is missing.')).toBeVisible();
  await page.unroute('**/runs/*/missing*');
  await stub(page, { error: { code: 'full', message: 'too busy', request_id: 'r-3' } }, 503);
  await page.reload();
  await expect(page.getByRole('alert')).toContainText('cannot read: 503 too busy');
  await page.unroute('**/runs/*/missing*');
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(page.locator('.verdict')).toBeVisible();
});

test('the overview says who reports which card, and no page shows the reports as text', async ({
  page,
  server,
}) => {
  await open(page, server, 'job', 'overview');
  const panel = page.locator('.panel').filter({ has: page.getByRole('heading', { name: /^Capture/ }) });
  await expect(panel.getByRole('heading')).toContainText('4 processes on 2 hosts');
  await expect(panel).toContainText('shm, kernel locks under /dev/shm');
  await expect(panel).toContainText('550.90.07');
  await expect(panel).toContainText('4 visible of 4');
  await expect(panel).toContainText('/sys/fs/cgroup/system.slice/job_48213, of 1.000');
  const rows = table(page, 'Who reports what').getByRole('row');
  await expect(rows).toHaveCount(1 + 2 * 3);
  await expect(rows.nth(1)).toContainText(/host-1.*node.*rank 0/);
  await expect(rows.nth(3)).toContainText(/host-1.*GPU 1.*H100.*rank 1/);
  await expect(rows.nth(6)).toContainText(/host-2.*GPU 1.*rank 3/);
  await expect(page.getByRole('region', { name: 'Attributes' })).not.toContainText('capture/');
  await open(page, server, 'laptop', 'overview');
  await expect(page.getByRole('region', { name: 'Attributes' })).toContainText('config/lr');
  await expect(page.getByRole('region', { name: 'Attributes' })).not.toContainText('capture/');
  await expect(page.getByText('/sys/fs/cgroup/user.slice/cpu.stat, of 2 CPUs')).toBeVisible();
  await expect(page.locator('main img')).toHaveCount(0);
});

test('keys go through the tabs in their order', async ({ page, server }) => {
  await open(page, server, 'job', 'ranks');
  await expect(page.getByRole('region', { name: 'Ranks over the run' })).toBeVisible();
  for (const next of ['training', 'timeline', 'missing', 'missing']) {
    await page.keyboard.press(']');
    await expect(page).toHaveURL(new RegExp(`/${next}`));
  }
  await page.keyboard.press('[');
  await expect(page).toHaveURL(/\/timeline/);
});

for (const theme of ['light', 'dark']) {
  test(`the pages are clean for axe and flow into 320 pixels, ${theme}`, async ({ page, server }) => {
    await stub(page, { run_id: 'r', ...ANSWER, capture: [report({ host: HOSTILE, devices: [device(0)] })] });
    for (const where of ['missing', 'overview']) {
      await page.setViewportSize({ width: 1440, height: 900 });
      await open(page, server, 'job', where, `?theme=${theme}`);
      await expect(page.locator(where === 'missing' ? '.verdict' : '.overview')).toBeVisible();
      await expect(tab(page)).toContainText('Missing 2');
      await clean(page);
      await page.setViewportSize({ width: 320, height: 800 });
      await fits(page, 320);
      await clean(page);
    }
  });
}
