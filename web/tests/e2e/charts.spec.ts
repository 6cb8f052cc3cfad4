/** The charts of a run, drawn from the real server. */
import { card, expect, openCharts, runId, test, words } from './fixture';
import { curve, Writer } from './push';

test.use({ world: 'charts' });

const NAME = 'charted';

test.beforeAll(async ({ server }) => {
  const now = Date.now();
  const writer = new Writer(server.url);
  const loss = (step: number) => (step === 600 ? Number.NaN : 2 + 8 * Math.exp(-step / 200));
  await writer.push({
    project: 'p',
    run: NAME,
    event: 1,
    attributes: { 'config/lr': '0.1' },
    timeMs: now - 1_000_000,
    series: [
      { name: 'loss', points: curve(1000, now, loss) },
      { name: 'grad_norm', points: curve(1000, now, (s) => 1 / (1 + s)) },
      { name: 'lonely', points: curve(1, now, () => 7) },
      { name: 'per_rank', labels: { rank: '0' }, points: curve(1000, now, (s) => s) },
      { name: 'per_rank', labels: { rank: '1' }, points: curve(1000, now, (s) => s * 2) },
      {
        name: 'system/cpu/utilization',
        labels: { host: 'host-1' },
        points: curve(400, now - 600_000, () => 30)
          .concat(curve(300, now, () => 60))
          .map(({ ms, value }) => ({ ms, value })),
      },
    ],
  });
});

test('a zoom in one chart zooms those on the same axis, and the way back is a key', async ({
  page,
  server,
}) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  await expect(words(page, 'loss')).toHaveAttribute(
    'aria-label',
    /step 0 to step 999; .*1 values? that are not finite/,
  );
  const area = card(page, 'loss').locator('.u-over');
  const box = (await area.boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.25, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 5 });
  await page.mouse.up();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 2[45]\d to step (49|50)\d/);
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step 2[45]\d to step (49|50)\d/);
  await expect(words(page, 'system/cpu/utilization')).toHaveAttribute(
    'aria-label',
    /lowest 30\W+%, highest 30/,
  );
  await expect(page).toHaveURL(/tfrom=\d+&tto=\d+/);
  await expect(page).toHaveURL(/from=\d+&to=\d+/);
  await expect(page.getByText(/^paused at/)).toBeVisible();
  await page.keyboard.press('Backspace');
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step 0 to step 999/);
  await page.goForward();
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step 2[45]\d to/);
  await page.keyboard.press('0');
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step 0 to step 999/);
});

test('the range of the run zooms steps and times, by menu, arrows, keys and a text', async ({
  page,
  server,
}) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 999/);
  const range = page.getByRole('group', { name: 'Time range' });
  // Over midnight each time has its day.
  await expect(range).toContainText(/This run (\d+ \w{3} )?\d\d:\d\d – (\d+ \w{3} )?\d\d:\d\d UTC/);
  await expect(range.getByRole('button', { name: 'Earlier' })).toBeDisabled();
  await range.getByRole('button', { name: /This run/ }).click();
  await page.getByRole('menuitem', { name: 'Its last 15 min' }).click();
  // Step 0 was 999 s before the last one.
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 9\d to step 999/);
  await expect(words(page, 'system/cpu/utilization')).toHaveAttribute('aria-label', /UTC to/);
  await expect(page).toHaveURL(/tfrom=\d+&tto=\d+/);
  await expect(range).toContainText(/15 min (\d+ \w{3} )?\d\d:\d\d/);
  await range.getByRole('button', { name: 'Earlier' }).click();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step \d to step (89|90)\d/);
  await page.keyboard.press('>');
  await expect(range).toContainText(/7 min (\d+ \w{3} )?\d\d:\d\d/);
  await page.keyboard.press('.');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 4\d\d to step (89|90)\d/);
  await page.goBack();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 2\d\d to step 6\d\d/);
  await page.keyboard.press('0');
  await expect(range).toContainText('This run');
  await range.getByRole('button', { name: /This run/ }).click();
  await page.getByRole('menuitem', { name: 'From and to …' }).click();
  const window = page.getByRole('dialog', { name: 'From and to' });
  const from = await window.getByLabel('From').inputValue();
  await window.getByLabel('From').fill(String(Date.parse(from) + 500_000));
  await window.getByRole('button', { name: 'Show this range' }).click();
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step (49\d|50\d) to step 999/);
  await page.reload();
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step (49\d|50\d) to step 999/);
});

test('wheel, drag and double click move in the data', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  const area = card(page, 'loss').locator('.u-over');
  const box = (await area.boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + 60);
  await page.mouse.wheel(0, -200);
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 999/);
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, -200);
  await page.keyboard.up('Control');
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step 19\d to step 80\d/);
  await page.keyboard.down('Shift');
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.8, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step \d\d? to step 6\d\d/);
  await area.dblclick();
  await expect(words(page, 'grad_norm')).toHaveAttribute('aria-label', /step 0 to step 999/);
});

test('the cursor is on all charts of an axis and reads real samples', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  const area = card(page, 'loss').locator('.u-over');
  const box = (await area.boundingBox())!;
  await area.hover({ position: { x: box.width / 2, y: 50 } });
  await expect(page.locator('.lane .flag')).toContainText(/step (499|500) · .* UTC/);
  await expect(card(page, 'grad_norm').locator('.readout')).toContainText(/0\.00(199|200)/);
  await expect(card(page, 'lonely').locator('.readout')).toContainText('absent');
  const system = card(page, 'system/cpu/utilization').locator('.readout');
  await expect(system).toContainText('absent');
  await area.hover({ position: { x: box.width * 0.1, y: 50 } });
  await expect(system).toContainText('30');
  await area.hover({ position: { x: box.width * 0.9, y: 50 } });
  await expect(system).toContainText('60');
  await area.hover({ position: { x: box.width / 2, y: 50 } });
  await expect(page.locator('.lane .flag')).toContainText(/step (499|500) /);
  await page.keyboard.press('ArrowRight');
  await expect(page.locator('.lane .flag')).toContainText(/step 50[0-2]/);
});

test('a second pin tells the difference to the first', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  const area = card(page, 'loss').locator('.u-over');
  const box = (await area.boundingBox())!;
  const flag = page.locator('.lane .flag');
  await area.hover({ position: { x: box.width * 0.1, y: 50 } });
  await expect(flag).toContainText(/step \d+/);
  const first = (await flag.textContent())!.match(/step ([\d,]+)/)![1];
  await page.keyboard.press('c');
  await expect(flag).toContainText('pinned');
  await area.hover({ position: { x: box.width * 0.9, y: 50 } });
  await expect(flag).toContainText(`step ${first} `);
  // The pointer's place is taken once a frame: a key that comes before that acts on the place before.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.keyboard.press('c');
  await expect(flag).not.toContainText(new RegExp(`^step ${first} `));
  await expect(flag).toContainText(`from step ${first} `);
  await expect(card(page, 'system/cpu/utilization').locator('.delta')).toHaveText(/Δ \+30\s%/);
  await expect(card(page, 'loss').locator('.mark-line')).toBeVisible();
  await page.keyboard.press('c');
  await expect(page.locator('.delta')).toHaveCount(0);
  await expect(page.locator('.mark-line')).toHaveCount(0);
  await expect(flag).not.toContainText('pinned');
});

test('the axis switches, and system charts say when theirs is another', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  const badge = card(page, 'system/cpu/utilization').getByText('⇄ time');
  await expect(badge).toBeVisible();
  await expect(words(page, 'system/cpu/utilization')).toHaveAttribute('aria-label', /UTC to .*1 gaps/);
  await page.getByRole('button', { name: 'Wall time' }).click();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /UTC to/);
  await expect(badge).toHaveCount(0);
  await page.keyboard.press('x');
  await expect(page).not.toHaveURL(/axis=/);
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0/);
  await page.getByRole('button', { name: 'Relative' }).click();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /after the start/);
  await page.reload();
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /after the start/);
});

test('smoothing and log scale are in the address', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'loss', '?smooth=ema:0.9');
  await expect(page.getByRole('button', { name: 'EMA' })).toHaveAttribute('aria-pressed', 'true');
  await card(page, 'loss').focus();
  await page.keyboard.press('l');
  await expect(card(page, 'loss').getByText('log', { exact: true })).toBeVisible();
  await expect(page).toHaveURL(/logs=loss/);
  await page.keyboard.press('s');
  await expect(page).toHaveURL(/smooth=window/);
});

test('points that come in later show up by themselves', async ({ page, server }) => {
  const writer = new Writer(server.url);
  const start = Date.now();
  await writer.push({
    project: 'p',
    run: 'growing',
    event: 1,
    series: [{ name: 'loss', points: curve(10, start, (s) => s) }],
  });
  await openCharts(page, server, await runId(server, 'growing'), 'loss');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 9;/);
  await writer.push({
    project: 'p',
    run: 'growing',
    series: [
      { name: 'loss', points: curve(10, Date.now(), (s) => s, 10) },
      { name: 'born_later', points: curve(3, Date.now(), () => 1) },
    ],
  });
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 19;/);
  await expect(page.locator('.facts')).toContainText('step 19');
  await expect(card(page, 'born_later')).toBeVisible();
  await expect(page.getByText(/live · data age/)).toBeVisible();
});

test('a hidden tab asks for nothing and catches up when it is seen', async ({ page, server }) => {
  const writer = new Writer(server.url);
  await writer.push({
    project: 'p',
    run: 'hidden',
    event: 1,
    series: [{ name: 'loss', points: curve(10, Date.now(), (s) => s) }],
  });
  await openCharts(page, server, await runId(server, 'hidden'), 'loss');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 9;/);
  const hide = (hidden: boolean) =>
    page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { value, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  const asked: string[] = [];
  await hide(true);
  page.on('request', (request) => asked.push(request.url()));
  await writer.push({
    project: 'p',
    run: 'hidden',
    series: [{ name: 'loss', points: curve(10, Date.now(), (s) => s, 10) }],
  });
  // Another page sees the point, so it was there to be seen.
  const other = await page.context().newPage();
  await openCharts(other, server, await runId(server, 'hidden'), 'loss');
  await expect(words(other, 'loss')).toHaveAttribute('aria-label', /step 0 to step 19;/);
  await other.close();
  expect(asked).toEqual([]);
  await hide(false);
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /step 0 to step 19;/);
});

test('a new attempt stands apart and says what was not kept', async ({ page, server }) => {
  const now = Date.now();
  const first = new Writer(server.url);
  await first.push({
    project: 'p',
    run: 'restarted',
    event: 1,
    job: 'a',
    timeMs: now - 600_000,
    series: [{ name: 'loss', points: curve(200, now - 300_000, (s) => 5 - s / 100) }],
  });
  await first.push({ project: 'p', run: 'restarted', event: 4, job: 'a', timeMs: now - 299_000 });
  const second = new Writer(server.url);
  await second.push({
    project: 'p',
    run: 'restarted',
    event: 1,
    job: 'b',
    restarts: 1,
    timeMs: now - 200_000,
    series: [{ name: 'loss', points: curve(150, now, (s) => 4.6 - s / 100, 150) }],
  });
  await openCharts(page, server, await runId(server, 'restarted'), 'loss');
  await expect(words(page, 'loss')).toHaveAttribute('aria-label', /2 attempts/);
  await expect(page.locator('.lane .attempt')).toHaveCount(2);
  await expect(card(page, 'loss').locator('.readout')).toContainText('attempt 2');
});

test('every point goes out as CSV, and the picture as PNG', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'grad_norm');
  const menu = card(page, 'grad_norm').getByRole('button', { name: /Actions/ });
  await menu.click();
  const [csv] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('menuitem', { name: /CSV/ }).click(),
  ]);
  expect(csv.suggestedFilename()).toBe('charted-grad_norm.csv');
  const lines = (await (await csv.createReadStream()).toArray()).join('').trim().split('\n');
  expect(lines.length).toBe(1001);
  await menu.click();
  const [png] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('menuitem', { name: 'Export PNG' }).click(),
  ]);
  expect(png.suggestedFilename()).toBe('charted-grad_norm.png');
});

test('a chart fills the window and can be read as a table', async ({ page, server }) => {
  await openCharts(page, server, await runId(server, NAME), 'loss');
  await card(page, 'per_rank').focus();
  await page.keyboard.press('f');
  await expect(card(page, 'per_rank')).toHaveClass(/full/);
  await page.keyboard.press('Escape');
  await expect(card(page, 'per_rank')).not.toHaveClass(/full/);
  await page.keyboard.press('v');
  await expect(page.getByRole('dialog').getByRole('columnheader')).toHaveText([
    'step',
    'rank 0',
    'rank 1',
    'min – max',
    'points',
  ]);
});

test('an error stays in its card and can be tried again', async ({ page, server }) => {
  const id = await runId(server, NAME);
  await page.route('**/api/tg/v1/points', (route) =>
    route.fulfill({
      status: 503,
      json: { error: { code: 'full', message: 'store is full', hint: 'free some space', request_id: 'r-7' } },
    }),
  );
  await page.goto(`${server.url}/r/${id}`);
  await expect(card(page, 'loss').getByRole('alert')).toContainText('cannot read: 503 store is full');
  await expect(card(page, 'loss').getByRole('alert')).toContainText('r-7');
  await page.unroute('**/api/tg/v1/points');
  await card(page, 'loss').getByRole('button', { name: 'Try again' }).click();
  await expect(card(page, 'loss').locator('canvas')).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(0);
});
