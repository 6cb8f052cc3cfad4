/** The Training tab: what trainers export through OpenTelemetry, read from the real server. */
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { Exporter, iteration, type Recorded, type Trainer } from './otlp';
import { curve, Writer } from './push';
import type { RealServer } from './server';
import { fits } from './width';

test.use({ world: 'training' });

const HOSTILE = '<img src=x onerror=alert(1)>';
const INTERVALS = 40;
const EVERY = 10_000;
const STEP = 1000;
const NOW = Math.floor((Date.now() - 5000) / 1000) * 1000;
const START = NOW - INTERVALS * EVERY;
/** What tells the server which card it is, and in what numbers the model is trained. */
const H100 = { 'nv.gpu.model': 'NVIDIA H100 80GB HBM3', 'megatron.precision': 'bf16' };

const trainer = (run: string, more: Partial<Trainer> = {}): Trainer => ({
  run,
  rank: 7,
  world: 8,
  startMs: START,
  ...more,
});

/** What one process records in a log interval; the third of them is the first of which the loss is no number. */
function recorded(at: number, more: Partial<Recorded> = {}): Recorded {
  const bad = at === 20 || at === 21;
  return {
    ms: START + (at + 1) * EVERY,
    loss: bad ? Number.NaN : 2 + 8 * Math.exp(-at / 8),
    tokens_per_sec: 50_000 + at,
    throughput_tflops: 400,
    grad_norm: bad ? Infinity : 1 / (1 + at),
    learning_rate: 3e-4,
    memory_allocated_gb: 60,
    skipped_iters: bad ? 1 : 0,
    step_duration_ms: 1000,
    ...more,
  };
}

const all = (more: Partial<Recorded> = {}) =>
  Array.from({ length: INTERVALS }, (_, at) => recorded(at, more));

/** Ten iterations of a log interval, one a second. */
const iterations = (at: number, slow = 1, rest = 0.35) =>
  Array.from({ length: EVERY / STEP }, (_, nth) => {
    const number = at * 10 + nth + 1;
    const parts = { forward_backward: 0.5 * slow, communication: 0.1, optimizer: 0.05, rest };
    return iteration(number, START + (number - 1) * STEP, parts);
  }).flat();

async function pretrain(server: RealServer): Promise<void> {
  const one = new Exporter(server.url, trainer('pretrain', { resource: H100 }));
  await one.metrics(all());
  for (let at = 0; at < INTERVALS; at += 10)
    await one.spans(Array.from({ length: 10 }, (_, nth) => iterations(at + nth)).flat());
}

/** Each of 64 ranks exports; the 17th is slow and holds more memory. */
async function everyRank(server: RealServer): Promise<void> {
  for (let rank = 0; rank < 64; rank++) {
    const one = new Exporter(server.url, trainer('every-rank', { rank, world: 64, resource: H100 }));
    const slow = rank === 17 ? 1.4 : 1;
    const memory = 60 + (rank === 17 ? 12 : 0);
    await one.metrics(all({ memory_allocated_gb: memory }).map((r) => ({ ...r, ms: r.ms + rank * 7 })));
    await one.spans([0, 1, 2].flatMap((at) => iterations(at, slow, 0.05)));
  }
}

async function thousand(server: RealServer): Promise<void> {
  const ranks = Array.from({ length: 1024 }, (_, rank) => rank);
  const send = async (rank: number) => {
    const one = new Exporter(
      server.url,
      trainer('thousand', { rank, world: 1024, host: `host-${rank >> 3}` }),
    );
    const memory = rank === 1000 ? 79 : 60;
    await one.metrics(
      [0, 1, 2, 3, 4].map((at) => ({ ms: recorded(at).ms + rank, loss: 3, memory_allocated_gb: memory })),
    );
  };
  for (let first = 0; first < ranks.length; first += 16)
    await Promise.all(ranks.slice(first, first + 16).map(send));
}

test.beforeAll(async ({ server }) => {
  test.setTimeout(180_000);
  await pretrain(server);
  await everyRank(server);
  await thousand(server);
  // The seed's exports and no switch beside: one rank, no throughput, no spans of steps.
  const plain = new Exporter(server.url, trainer('plain'));
  await plain.metrics(
    all().map(({ throughput_tflops: _, skipped_iters: __, ...r }) => ({ ...r, loss: 3, grad_norm: 1 })),
  );
  await new Exporter(server.url, trainer('too-fast', { resource: H100 })).metrics(
    all({ throughput_tflops: 1400 }),
  );
  await new Exporter(server.url, trainer(HOSTILE, { service: HOSTILE, host: HOSTILE })).metrics(all());
  await new Exporter(server.url, trainer('slow-steps')).metrics(all({ step_duration_ms: 14_000 }));
  const points = (value: (step: number) => number) => curve(200, NOW, value);
  await new Writer(server.url).push({
    project: 'p',
    run: 'steps-only',
    event: 1,
    timeMs: NOW - 200_000,
    series: [{ name: 'train_step_seconds', points: points(() => 0.4) }],
  });
  await new Writer(server.url).push({
    project: 'p',
    run: 'native',
    event: 1,
    timeMs: NOW - 200_000,
    series: [
      { name: 'megatron_training_loss', points: points((s) => (s === 100 ? Number.NaN : 3 - s / 200)) },
      { name: 'train_step_seconds', points: points(() => 0.4) },
      { name: 'megatron_training_step_duration_ms_milliseconds', points: points(() => 500) },
    ],
  });
});

async function withLines(server: RealServer): Promise<void> {
  const lines = (count: number, severity: number, body: string) =>
    Array.from({ length: count }, (_, at) => ({
      ms: START + at * 1000,
      severity,
      body: body.replace('#', `${at}`),
    }));
  const one = new Exporter(server.url, trainer('lines'));
  await one.metrics([recorded(0), recorded(1)]);
  await one.logs([
    ...lines(210, 13, 'slow batch #'),
    ...lines(1, 17, `CUDA error ${HOSTILE}\u202e`),
    ...lines(3, 9, 'saving checkpoint #'),
  ]);
  await new Exporter(server.url, trainer('lines', { rank: 3 })).logs(lines(1, 17, 'NCCL timeout'));
}

async function openTraining(page: Page, server: RealServer, run: string, query = ''): Promise<void> {
  const id = await runId(server, run);
  await page.goto(`${server.url}/o/-/-/-/r/${id}/training${query}`);
  await expect(page.getByRole('link', { name: 'Training' })).toHaveAttribute('aria-current', 'page');
}

const panel = (page: Page, id: string) => page.locator(`[data-panel="${id}"]`);
const words = (page: Page, id: string) => panel(page, id).locator('.plot');
/** What the tab asks; what every page of a run asks beside it is the same for any number of ranks. */
function questionsOf(page: Page): string[] {
  const asked: string[] = [];
  page.on('request', (request) => {
    const url = request.url();
    if (url.includes('/api/') && !/\/(health|alerts\/summary|remediation)(\?|$)/.test(url)) asked.push(url);
  });
  return asked;
}

const health = (page: Page) => page.locator('.training-health');

test('what is wrong comes first, in words: NaN, skips, and where a step goes', async ({ page, server }) => {
  await openTraining(page, server, 'pretrain');
  await expect(health(page)).toContainText(
    /^The loss was not finite 2 times, last at step 2[12]\d; 2 iterations were skipped/,
  );
  await expect(health(page)).toContainText(/Of a step's time: 50\W% forward, backward;.*unattributed/);
  await expect(words(page, 'loss')).toHaveAttribute(
    'aria-label',
    /^Loss: step .*2 values? that are not finite/,
  );
  await expect(panel(page, 'loss')).toContainText('2 skipped · 2 NaN');
  await expect(panel(page, 'grad_norm')).toContainText('2 +Inf');
  await expect(page.getByRole('region', { name: 'Events' })).toContainText('not finite');
  await expect(words(page, 'tokens')).toHaveAttribute('aria-label', /lowest 50,000, highest 50,039/);
  await expect(words(page, 'memory')).toHaveAttribute('aria-label', /last 60\WGiB/);
});

test('MFU names its peak, and over 100 % is an error and no line', async ({ page, server }) => {
  await openTraining(page, server, 'pretrain');
  await expect(words(page, 'mfu')).toHaveAttribute('aria-label', /last 40\.4\d*\W%/);
  await expect(panel(page, 'mfu')).toContainText(/989.*H100|H100.*989/);
  await openTraining(page, server, 'too-fast');
  await expect(panel(page, 'mfu')).toContainText('configuration error');
  await expect(panel(page, 'mfu').locator('canvas')).toHaveCount(0);
  await expect(words(page, 'tflops')).toHaveAttribute('aria-label', /last 1,400/);
});

test('the parts of a step sum to its wall, and what no span tells is shown', async ({ page, server }) => {
  await openTraining(page, server, 'pretrain');
  const strip = panel(page, 'breakdown');
  await expect(strip).toContainText('400 iterations');
  await expect(strip).toContainText(/sum to the wall time of each iteration within 0\.\d+\W%/);
  await expect(strip.getByRole('button', { name: /forward, backward 50\W%/ })).toBeVisible();
  await expect(strip.getByRole('button', { name: /communication 10\W%/ })).toBeVisible();
  await expect(strip.getByRole('button', { name: /unattributed 35\W%/ })).toBeVisible();
  await expect(strip.locator('.plot')).toHaveAttribute('aria-label', /^step 1 to step 400: .*optimizer 5\W%/);
  await strip.getByRole('button', { name: /communication/ }).click();
  await expect(page).toHaveURL(/part=communication/);
  await page.reload();
  await expect(strip.getByRole('button', { name: /communication/ })).toHaveAttribute('aria-pressed', 'true');
});

test('one axis: points without steps stand at the step of their time, zoom and cursor are everywhere', async ({
  page,
  server,
}) => {
  await openTraining(page, server, 'pretrain');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 1 to step 400/);
  await expect(panel(page, 'loss').getByText('⇄ time')).toBeVisible();
  const area = panel(page, 'loss').locator('.u-over');
  const box = (await area.boundingBox())!;
  await area.hover({ position: { x: box.width / 2, y: 40 } });
  await expect(page.locator('.lane .flag')).toContainText(/step (19\d|20\d)/);
  await expect(panel(page, 'breakdown').locator('.at')).toContainText(/step (19\d|20\d): 1\Ws/);
  await page.mouse.move(box.x + box.width * 0.25, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.45, box.y + 40, { steps: 5 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=\d+(\.\d+)?&to=\d+/);
  await expect(words(page, 'tokens')).toHaveAttribute('aria-label', /step (9|10)\d to step (17|18)\d/);
  await expect(panel(page, 'breakdown')).toContainText(/(79|80|81) iterations/);
  await page.keyboard.press('0');
  await expect(words(page, 'tokens')).toHaveAttribute('aria-label', /step 1 to step 400/);
  await page.getByRole('button', { name: 'Wall time' }).click();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /UTC to .*UTC/);
  await expect(panel(page, 'breakdown').locator('.plot')).toHaveAttribute('aria-label', /UTC to/);
  await page.keyboard.press('x');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 1 to step 400/);
});

test('step times are quantiles with their note; beyond the last bound they say so', async ({
  page,
  server,
}) => {
  await openTraining(page, server, 'pretrain');
  await expect(panel(page, 'step_time')).toContainText('one observation per log interval');
  await expect(panel(page, 'step_time').locator('.readout')).toHaveText([/p50\s*0?\.?\d/, /p95/]);
  await openTraining(page, server, 'slow-steps');
  await expect(panel(page, 'step_time').locator('.warning')).toContainText(/10\W?(,000\W?ms|\W?s)/);
});

test('what is absent names the switch that fills it', async ({ page, server }) => {
  await openTraining(page, server, 'plain');
  await expect(panel(page, 'tflops')).toContainText('--log-throughput');
  await expect(panel(page, 'mfu')).toContainText('Absent');
  await expect(panel(page, 'breakdown')).toContainText('MEGATRON_OTEL_SPAN_GROUPS=per_step');
  await expect(panel(page, 'spread')).toContainText('MEGATRON_OTEL_EXPORT_STRATEGY=all_ranks');
  await expect(panel(page, 'loss')).toContainText('0 skipped');
  await expect(health(page)).toContainText('Every loss that came is finite, no iteration was skipped.');
  await expect(health(page)).toContainText('No point has a step: drawn over time.');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /UTC to/);
});

test('64 ranks are their median and spread, and who is far from it is named', async ({ page, server }) => {
  const asked = questionsOf(page);
  await openTraining(page, server, 'every-rank');
  await expect(panel(page, 'spread')).toContainText(/Farthest: rank 17, 1\.\d\d × the median of 64/);
  await expect(panel(page, 'memory').locator('.readout')).toContainText(/median of 64\s*60\WGiB/);
  await expect(words(page, 'memory')).toHaveAttribute('aria-label', /lowest 60\WGiB, highest 72\WGiB/);
  // The same NaN on every rank is not 64 of them.
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /median|not finite/);
  await expect(panel(page, 'breakdown')).toContainText('mean of 64 ranks');
  await expect(page.locator('.loading-bar')).toHaveCount(0);
  expect(asked.length).toBeLessThanOrEqual(12);
  await panel(page, 'spread').getByRole('combobox').selectOption('memory_allocated_gb');
  await expect(panel(page, 'spread')).toContainText('Farthest: rank 17, 1.20 × the median of 64');
  await panel(page, 'breakdown').getByRole('combobox').selectOption('17');
  await expect(page).toHaveURL(/rank=17/);
  await expect(panel(page, 'breakdown')).toContainText('30 iterations, rank 17');
});

test('1,024 ranks are read in few parts', async ({ page, server }) => {
  const asked = questionsOf(page);
  await openTraining(page, server, 'thousand');
  await expect(panel(page, 'spread')).toContainText('Farthest: rank 1000, 1.32 × the median of 1,024');
  await expect(panel(page, 'memory').locator('.readout')).toContainText('median of 1024');
  await expect(words(page, 'memory')).toHaveAttribute('aria-label', /highest 79\WGiB/);
  await expect(page.locator('.loading-bar')).toHaveCount(0);
  expect(asked.length).toBeLessThanOrEqual(12);
});

test('runs of other ids lie over this one, and are compared', async ({ page, server }) => {
  await openTraining(page, server, 'pretrain', '?ids=plain,nobody');
  await expect(page.getByRole('list', { name: 'Runs laid over' })).toContainText('nobody no run has this id');
  await page.getByRole('button', { name: 'Leave out nobody' }).click();
  await expect(page).toHaveURL(/ids=plain$/);
  const over = page.getByRole('list', { name: 'Runs laid over' });
  await expect(over).toContainText('plain has no steps');
  await over.getByRole('button', { name: 'Relative' }).click();
  await expect(panel(page, 'loss').locator('.readout')).toHaveText([/pretrain\s*2\.0/, /plain\s*3/]);
  await page.getByRole('combobox', { name: 'Lay another run over' }).focus();
  await page.getByRole('combobox', { name: 'Lay another run over' }).selectOption('slow-steps');
  await expect(page).toHaveURL(/ids=plain%2Cslow-steps/);
  await expect(panel(page, 'loss').locator('.legend button')).toHaveCount(3);
  await page.getByRole('link', { name: 'Compare all' }).click();
  await expect(page.locator('.chips li')).toContainText(['pretrain', 'plain', 'slow-steps', 'add']);
  await page.goto(`${server.url}/compare?ids=pretrain,plain,nobody`);
  await expect(page.locator('[data-chart="megatron.training.loss"] canvas')).toBeVisible();
  await expect(page.getByText('No run has the nemo.run.id nobody')).toBeVisible();
});

test('a run of our own client has the same panels, with the step of every point', async ({
  page,
  server,
}) => {
  await openTraining(page, server, 'native');
  await expect(words(page, 'loss')).toHaveAttribute(
    'aria-label',
    /step 0 to step 199; .*1 values? that are not/,
  );
  await expect(panel(page, 'loss').getByText('⇄ time')).toHaveCount(0);
  await expect(words(page, 'step_time')).toHaveAttribute('aria-label', /last 0\.50*\Ws/);
  await expect(panel(page, 'memory')).toContainText('record(memory_allocated_gb=...)');
  await expect(panel(page, 'breakdown')).toContainText('MEGATRON_OTEL_ENABLED=1');
});

test('a run that logs nothing but the time of its steps shows all of them', async ({ page, server }) => {
  await openTraining(page, server, 'steps-only');
  await expect(words(page, 'step_time')).toHaveAttribute('aria-label', /step 0 to step 199/);
  await expect(panel(page, 'loss')).toContainText('truegauge.training');
});

test('hostile names are text', async ({ page, server }) => {
  await openTraining(page, server, HOSTILE, `?ids=${encodeURIComponent(HOSTILE)},plain&axis=relative`);
  await expect(panel(page, 'loss').locator('.readout').first()).toContainText('<img');
  await expect(page.locator('main img')).toHaveCount(0);
  await clean(page);
});

test('lines that processes logged are asked for when they are wanted', async ({ page, server }) => {
  await withLines(server);
  await openTraining(page, server, 'lines');
  const panelOf = page.getByRole('region', { name: 'Log lines' });
  await panelOf.getByRole('button', { name: 'Log lines' }).click();
  await expect(page).toHaveURL(/lines=warn/);
  await expect(panelOf).toContainText('slow batch 0');
  await expect(panelOf).not.toContainText('saving checkpoint');
  await expect(panelOf.getByRole('row')).toHaveCount(201);
  await panelOf.getByRole('button', { name: 'More after the first 200' }).click();
  await expect(panelOf.getByRole('row')).toHaveCount(213);
  await panelOf.getByRole('button', { name: 'error' }).click();
  await expect(panelOf.getByRole('row')).toHaveCount(3);
  await expect(panelOf).toContainText('CUDA error <img src=x onerror=alert(1)>\\u202e');
  await expect(panelOf).toContainText('NCCL timeout');
  await expect(page.locator('main img')).toHaveCount(0);
  await clean(page);
  await openTraining(page, server, 'lines', '?lines=error&rank=3');
  await expect(panelOf.getByRole('row')).toHaveCount(2);
  await openTraining(page, server, 'plain', '?lines=debug');
  await expect(panelOf).toContainText('MEGATRON_OTEL_LOGS_ENABLED=1');
});

test('keys: cursor, table, log axis, full screen', async ({ page, server }) => {
  await openTraining(page, server, 'pretrain');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 1 to step 400/);
  await panel(page, 'loss').focus();
  await page.keyboard.press('ArrowRight');
  await expect(page.locator('.lane .flag')).toContainText(/step \d+/);
  await page.keyboard.press('l');
  await expect(panel(page, 'loss').getByText('log', { exact: true })).toBeVisible();
  await page.keyboard.press('f');
  await expect(panel(page, 'loss')).toHaveClass(/full/);
  await page.keyboard.press('Escape');
  await expect(panel(page, 'loss')).not.toHaveClass(/full/);
  await expect(panel(page, 'breakdown').locator('canvas')).toBeVisible();
  await panel(page, 'breakdown').locator('.stack').focus();
  await page.keyboard.press('v');
  const table = page.getByRole('dialog');
  await expect(table).toContainText('unattributed');
  await expect(table.getByRole('row').nth(1)).toContainText(/50/);
});

test('points that come in later show up by themselves', async ({ page, server }) => {
  const one = new Exporter(server.url, trainer('growing', { startMs: Date.now() - 60_000 }));
  const at = (ms: number, loss: number) => ({ ms, loss, tokens_per_sec: 10 });
  await one.metrics([at(Date.now() - 40_000, 5), at(Date.now() - 30_000, 4)]);
  await openTraining(page, server, 'growing');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /last 4,/);
  await expect(panel(page, 'loss')).toContainText('0 skipped');
  await one.metrics([{ ...at(Date.now(), 3), skipped_iters: 2 }]);
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /last 3,/);
  await expect(panel(page, 'loss')).toContainText('2 skipped');
});

test('an error is told where it belongs, and asking again helps', async ({ page, server }) => {
  const full = {
    status: 503,
    json: { error: { code: 'full', message: 'store is full', request_id: 'r-9' } },
  };
  await page.route('**/timeline?part=breakdown*', (route) => route.fulfill(full));
  await openTraining(page, server, 'pretrain');
  await expect(panel(page, 'breakdown').getByRole('alert')).toContainText('cannot read: 503 store is full');
  await expect(words(page, 'tokens')).toHaveAttribute('aria-label', /highest 50,039/);
  await page.unroute('**/timeline?part=breakdown*');
  await panel(page, 'breakdown').getByRole('button', { name: 'Try again' }).click();
  await expect(panel(page, 'breakdown')).toContainText('400 iterations');
  await expect(page.getByRole('alert')).toHaveCount(0);
});

for (const theme of ['light', 'dark']) {
  test(`the page is clean for axe and flows into 320 pixels, ${theme}`, async ({ page, server }) => {
    await openTraining(page, server, 'pretrain', `?theme=${theme}`);
    await expect(panel(page, 'breakdown')).toContainText('400 iterations');
    // Plots are drawn on the screen alone, and a verdict above may take the room.
    await panel(page, 'step_time').scrollIntoViewIfNeeded();
    await expect(words(page, 'step_time').locator('canvas')).toBeVisible();
    await clean(page);
    await openTraining(page, server, 'plain', `?theme=${theme}`);
    await expect(panel(page, 'tflops')).toContainText('--log-throughput');
    await clean(page);
    await page.setViewportSize({ width: 320, height: 800 });
    await fits(page, 320);
    await clean(page);
  });
}
