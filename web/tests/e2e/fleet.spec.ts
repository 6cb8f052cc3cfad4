/** The fleet's pages, read from the real server: what agents told over two hours. */
import type { Page } from '@playwright/test';
import { startAgent } from './agent';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { type NodeEvent, NodeWriter } from './node_push';
import { curve, type Point, type Push, Writer } from './push';
import type { RealServer } from './server';

test.use({ world: 'fleet' });

const HOSTILE = '<img src=x onerror=alert(1)>';
const MINUTE = 60_000;
const NOW = Date.now();
const START = NOW - 120 * MINUTE;
const STEP = 20_000;
const CARDS = 4;
/** When a card of host-2 fell off its bus, and one of host-1 began to throttle. */
const FELL = NOW - 40 * MINUTE;
const ONSET = NOW - 50 * MINUTE;
/** When the agent of host-9 stopped. */
const SILENT = NOW - 25 * MINUTE;

const HOSTS = ['host-1', 'host-2', HOSTILE, 'host-9'];
const uuidOf = (host: string, gpu: number) => `GPU-${HOSTS.indexOf(host)}${gpu}00-aaaa`;
const pci = (gpu: number) => `00000000:${(0x1b + gpu * 16).toString(16).toUpperCase()}:00.0`;

/** Looks that are told together: an owner is told of each time. */
const TOGETHER = 3 * MINUTE;

/** What an agent tells of its node in a few looks one after the other. */
function nodeSeries(host: string, run: string, from: number): NonNullable<Push['series']> {
  const points = (value: (time: number) => number, until = NOW): Point[] => {
    const all: Point[] = [];
    for (let ms = from; ms < Math.min(from + TOGETHER, until); ms += STEP) all.push({ ms, value: value(ms) });
    return all;
  };
  const until = host === 'host-9' ? SILENT : NOW;
  const driver = (time: number) => (host === 'host-2' && time > FELL ? CARDS - 1 : CARDS);
  const node: NonNullable<Push['series']> = [
    { name: 'tg_node_gpus', labels: { source: 'pci' }, points: points(() => CARDS, until) },
    { name: 'tg_node_gpus', labels: { source: 'driver' }, points: points(driver, until) },
  ];
  for (let gpu = 0; gpu < CARDS; gpu++) {
    const end = host === 'host-2' && gpu === 3 ? FELL : until;
    const labels = { gpu: String(gpu), uuid: uuidOf(host, gpu) };
    const slow = (time: number) => host === 'host-1' && gpu === 2 && time > ONSET;
    const one = (name: string, value: (time: number) => number, more: Record<string, string> = {}) =>
      node.push({ name, labels: { ...labels, ...more }, points: points(value, end) });
    one('tg_gpu_info', () => 1, {
      vendor: 'nvidia',
      gpu_model: 'NVIDIA H100 80GB HBM3',
      driver: '570.86.15',
      pci_bus_id: pci(gpu),
      mig: 'false',
    });
    one('tg_gpu_power_watts', (t) => (slow(t) ? 430 : 560 + gpu));
    one('tg_gpu_power_limit_watts', () => 700);
    one('tg_gpu_tensor_active_ratio', () => 0.4);
    one('tg_gpu_dram_active_ratio', () => 0.5);
    one('tg_gpu_sm_clock_hertz', (t) => (slow(t) ? 1.404e9 : 1.755e9));
    one('tg_gpu_temperature_margin_celsius', (t) => (slow(t) ? 0 : 21));
    one('tg_gpu_busy_ratio', () => 1);
    one('tg_gpu_throttled_seconds_total', (t) => (slow(t) ? ((t - ONSET) / 1000) * 0.41 : 0), {
      reason: 'hw_thermal',
    });
    one('tg_gpu_ecc_errors_total', () => 0, { kind: 'uncorrected', scope: 'volatile' });
    one('tg_gpu_row_remap_pending', () => (gpu === 1 ? 1 : 0));
    if (gpu === 0) one('tg_gpu_unsupported_info', () => 1, { field: 'tg_gpu_memory_temperature_celsius' });
    const owned = (more: Record<string, string>) => {
      if (from < end) one('tg_gpu_owner_info', () => 1, more);
    };
    if (host !== HOSTILE) owned({ run_id: run, job_id: '48213', confidence: 'certain' });
    else owned({ namespace: 'ns', pod: HOSTILE, confidence: 'likely', shared: '2' });
  }
  return node;
}

const xid = (ms: number, number: number, gpu: number, more: Partial<NodeEvent> = {}): NodeEvent => ({
  ms,
  kind: 'xid',
  severity: 'critical',
  key: `boot:${ms}:${number}`,
  labels: { source: 'kernel', gpu: String(gpu), uuid: uuidOf('host-2', gpu), pci_bus_id: pci(gpu) },
  text: `NVRM: Xid (PCI:0000:4b:00): ${number}, pid=1234, name=${HOSTILE}\u001b[31m, a line`,
  body: { xid: number, message: 'a line', pid: 1234, name: HOSTILE, line: 'a line' },
  ...more,
});

let run = '';

test.beforeAll(async ({ server }) => {
  const writer = new Writer(server.url);
  await writer.push({
    project: 'p',
    run: 'pretrain',
    event: 1,
    job: 'j',
    host: 'host-1',
    series: [{ name: 'loss', points: curve(10, NOW, () => 1) }],
  });
  run = await runId(server, 'pretrain');
  for (const host of HOSTS) {
    const events =
      host === 'host-2'
        ? [
            xid(FELL, 79, 3),
            xid(FELL + 500, 45, 3, { severity: 'info' }),
            xid(FELL + 2000, 79, 0, { labels: { source: 'userspace', gpu: '0', uuid: uuidOf('host-2', 0) } }),
          ]
        : [];
    // Nothing more comes while the tests run: an agent is missed after three of its intervals.
    const agent = new NodeWriter(server.url, host, 2 * MINUTE);
    for (let from = START; from < NOW; from += TOGETHER) {
      const now = events.filter((e) => e.ms >= from && e.ms < from + TOGETHER);
      const told = nodeSeries(host, run, from).filter((one) => one.points.length > 0);
      if (told.length > 0) await agent.push(told, now);
    }
  }
});

const map = (page: Page) => page.getByRole('application', { name: /^Map of/ });
const facts = (page: Page) => page.locator('.facts-line');

async function openFleet(page: Page, server: RealServer, query = ''): Promise<void> {
  await page.goto(`${server.url}/fleet?from=-2h${query}`);
  await expect(map(page)).toBeVisible();
}

test('the headline counts hosts and cards, and the gap between bus and driver', async ({ page, server }) => {
  await openFleet(page, server);
  await expect(page.locator('.page-bar .facts')).toContainText('4 hosts');
  await expect(page.locator('.page-bar .facts')).toContainText('16 by PCI');
  await expect(page.locator('.page-bar')).toContainText('1 GPU missing');
  const gaps = page.getByRole('region', { name: 'Inventory gaps' });
  await expect(gaps.getByRole('row', { name: /host-2/ })).toContainText('4');
});

test('keys move over the map, colour it and open the card’s page; the address holds all of it', async ({
  page,
  server,
}) => {
  await openFleet(page, server);
  await map(page).focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('5');
  await expect(page).toHaveURL(/colour=throttled/);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowLeft');
  // The hostile name comes first; from nowhere the first card, then three on and one back.
  const cell = uuidOf(HOSTILE, 2);
  await expect(page).toHaveURL(new RegExp(`cell=${cell}`));
  await expect(facts(page)).toContainText('GPU');
  await page.keyboard.press('w');
  await expect(page).toHaveURL(/agg=worst/);
  await page.keyboard.press('b');
  await expect(page).toHaveURL(/group=job/);
  await page.reload();
  await expect(page.getByRole('button', { name: 'throttled' })).toHaveAttribute('aria-pressed', 'true');
  await expect(page.getByRole('button', { name: 'job', exact: true })).toHaveAttribute(
    'aria-pressed',
    'true',
  );
  await expect(page.getByRole('button', { name: 'worst' })).toHaveAttribute('aria-pressed', 'true');
  await expect(facts(page)).toContainText('GPU 2');
  await map(page).focus();
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(new RegExp(`/fleet/.*uuid=${cell}`));
  await page.goBack();
  await expect(map(page)).toBeVisible();
});

test('a slow card stands beside its peers, and its page tells since when', async ({ page, server }) => {
  await openFleet(page, server, `&cell=${uuidOf('host-1', 2)}`);
  const panel = page.getByRole('region', { name: 'The selected card' });
  await expect(panel).toContainText('host-1 · GPU 2');
  await expect(panel).toContainText(/and its \d+ peers/);
  await expect(panel.locator('[data-lane="clock"] .reads')).toContainText('1.404');
  await expect(panel.locator('[data-lane="clock"] .reads')).toContainText('1.755');
  await expect(facts(page)).toContainText('0.61');
  await expect(facts(page)).toContainText('pretrain');
  await panel.getByRole('link', { name: 'GPU page' }).click();
  await expect(page.locator('.card-facts')).toContainText('NVIDIA H100');
  await expect(page.locator('.card-facts')).toContainText('570.86.15');
  // A share up to now would shrink with each second that the samples end before it.
  const ending = new URL(page.url());
  ending.searchParams.set('from', String(NOW - 180 * MINUTE));
  ending.searchParams.set('to', String(NOW));
  await page.goto(ending.href);
  await expect(page.locator('[data-lane="throttled"] .reads')).toContainText('hw_thermal');
  await expect(page.locator('[data-lane="throttled"] .reads')).toContainText('0.41');
  await expect(page.locator('[data-lane="power"] .reads')).toContainText('700');
  await expect(page.locator('[data-lane="nvlink"]')).toContainText('Absent');
  await expect(page.getByRole('img', { name: /^Owners: .*pretrain/ })).toBeVisible();
  await expect(page.getByRole('region', { name: 'Table of peers' })).toContainText('this card');
});

test('what cannot be read for one reason is said once', async ({ page, server }) => {
  await page.route(/\/api\/tg\/v1\/(fleet|incidents)/, (route) => route.abort());
  await page.goto(`${server.url}/fleet`);
  await expect(page.getByRole('heading', { name: 'Incidents' })).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(1);
  await expect(page.getByRole('alert')).toContainText('the server does not answer');
});

test('an incident has one row with its action, its lines, and what is grey', async ({ page, server }) => {
  await openFleet(page, server);
  const incident = page.getByRole('article').filter({ hasText: 'host-2 · GPU 3' });
  await expect(incident).toHaveCount(1);
  await expect(incident.locator('.pill')).toBeVisible();
  await incident.getByRole('button', { name: 'Evidence' }).click();
  await expect(incident).toContainText('Xid 79');
  await expect(incident).toContainText('symptom, not acted on');
  await expect(incident.locator('.lines')).toContainText('\\u001b[31m');
  await incident.getByRole('button', { name: /host-2 · GPU 3/ }).click();
  await expect(facts(page)).toContainText('host-2 · GPU 3');
  await expect(facts(page)).toContainText('absent');
});

test('Xids stand on the axis of the card’s page', async ({ page, server }) => {
  await page.goto(`${server.url}/fleet/host-2/3?uuid=${uuidOf('host-2', 3)}&from=-2h`);
  await expect(page.locator('.events .event').first()).toBeVisible();
  await expect(page.getByRole('region', { name: 'Table of events' })).toContainText('xid');
  await expect(page.getByRole('article')).toContainText('host-2');
});

test('a silent host is absent, not idle', async ({ page, server }) => {
  await openFleet(page, server, `&cell=${uuidOf('host-9', 0)}`);
  await expect(facts(page)).toContainText('absent');
  await expect(page.locator('.owners')).toContainText('silent');
  await expect(page.locator('.hosts .silent')).toHaveText('host-9');
  await expect(page.locator('.toolbar')).toContainText('5 stale');
});

test('a filter keeps cards, and says when none is left', async ({ page, server }) => {
  await openFleet(page, server, '&f=host%3Ahost-1');
  await expect(map(page)).toHaveAccessibleName(/Map of 4 GPUs/);
  await page.goto(`${server.url}/fleet?f=host%3Anobody`);
  await expect(page.getByText('No card is left by this filter.')).toBeVisible();
  await page.getByRole('button', { name: 'Show all' }).click();
  await expect(map(page)).toBeVisible();
});

test('names of hosts, pods and processes stay text', async ({ page, server }) => {
  await openFleet(page, server, `&cell=${uuidOf(HOSTILE, 1)}`);
  await expect(page.getByRole('region', { name: 'The selected card' })).toContainText(HOSTILE.slice(0, 8));
  await expect(page.locator('.owners')).toContainText('<img');
  await page.goto(`${server.url}/fleet/${encodeURIComponent(HOSTILE)}/1`);
  await expect(page.locator('h1')).toContainText(HOSTILE);
  await expect(page.locator('.card-facts')).toContainText('shared by 2');
});

test('a place without a card says which cards are there', async ({ page, server }) => {
  await page.goto(`${server.url}/fleet/host-1/17`);
  await expect(page.getByText('host-1 has no GPU 17 in this range.')).toBeVisible();
  await page.getByRole('link', { name: 'GPU 2' }).click();
  await expect(page.locator('.card-facts')).toContainText('NVIDIA H100');
});

test('new samples come without a reload', async ({ page, server }) => {
  const agent = new NodeWriter(server.url, 'host-new');
  const look = (watts: number) => {
    const labels = { gpu: '0', uuid: 'GPU-new' };
    const at = [{ ms: Date.now(), value: 0 }];
    const one = (name: string, value: number) => ({ name, labels, points: [{ ...at[0], value }] });
    return agent.push([
      one('tg_gpu_info', 1),
      one('tg_gpu_power_watts', watts),
      one('tg_gpu_power_limit_watts', 100),
    ]);
  };
  await look(25);
  await openFleet(page, server, '&cell=GPU-new');
  await expect(facts(page)).toContainText('0.25');
  await look(75);
  // The middle of what was measured lately.
  await expect(facts(page)).toContainText('0.50', { timeout: 30_000 });
  await expect(facts(page)).toContainText('power 75');
});

test('a page asks the server a dozen times at most', async ({ page, server }) => {
  const asked: string[] = [];
  page.on('request', (request) => {
    if (request.url().includes('/api/') && !request.url().includes('/stream')) asked.push(request.url());
  });
  await openFleet(page, server, `&cell=${uuidOf('host-1', 2)}`);
  await expect(page.locator('[data-lane="clock"] .reads')).toContainText('1.404');
  expect(asked.length).toBeLessThanOrEqual(12);
  asked.length = 0;
  await page.goto(`${server.url}/fleet/host-1/2?from=-2h`);
  await expect(page.locator('[data-lane="clock"] .reads')).toContainText('1.404');
  await expect(page.getByRole('region', { name: 'Table of counters' })).toBeVisible();
  expect(asked.length).toBeLessThanOrEqual(12);
});

for (const theme of ['light', 'dark'])
  test(`both pages are accessible, ${theme}`, async ({ page, server }) => {
    await openFleet(page, server, `&theme=${theme}&cell=${uuidOf('host-1', 2)}`);
    await expect(page.locator('[data-lane="clock"] .reads')).toContainText('1.404');
    await page.getByRole('button', { name: 'Evidence' }).first().click();
    await clean(page);
    await page.goto(`${server.url}/fleet/host-2/3?theme=${theme}&uuid=${uuidOf('host-2', 3)}&from=-2h`);
    await expect(page.locator('.card-facts')).toContainText('NVIDIA H100');
    await clean(page);
  });

const DRIVER = (gone: boolean) => `driver_version = "570.86.15"
${[0, 1]
  .map(
    (gpu) => `
[[gpu]]
uuid = "GPU-0000000${gpu}-0000-4000-8000-00000000a6e7"
name = "NVIDIA H100 80GB HBM3"
bus_id = "${pci(gpu)}"
compute_capability = [9, 0]
gone = ${gone && gpu === 1}
values = { power_mw = ${gpu === 0 ? 350000 : 420000}, limit_mw = 700000, temperature = 41, sm_mhz = 1755, sm_max_mhz = 1980 }
`,
  )
  .join('')}`;

test('a real agent’s cards appear, and what the kernel says of one is an incident', async ({
  page,
  server,
}) => {
  const agent = await startAgent(server.url, 'real-node', DRIVER(false));
  try {
    await openFleet(page, server, '&f=host%3Areal-node');
    await expect(map(page)).toHaveAccessibleName(/Map of 2 GPUs/, { timeout: 30_000 });
    await map(page).focus();
    await page.keyboard.press('ArrowRight');
    await expect(facts(page)).toContainText('real-node · GPU 0');
    await expect(facts(page)).toContainText('0.50');
    agent.log(
      `<3>NVRM: Xid (PCI:${pci(1).slice(4).toLowerCase()}): 79, pid=77, name=python3, GPU has fallen off the bus.`,
    );
    agent.play(DRIVER(true));
    const incident = page.getByRole('article').filter({ hasText: 'real-node' });
    await expect(incident).toContainText('Xid 79', { timeout: 30_000 });
  } finally {
    await agent.stop();
  }
});
