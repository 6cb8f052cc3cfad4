/** The Timeline tab: spans that a trainer's exporter sent, read from the real server. */
import type { Page } from '@playwright/test';
import type { SpanAnswer } from '../../src/timeline/answer';
import { madeSpans } from '../stories/spans';
import { clean } from './axe';
import { expect, runId, test } from './fixture';
import { Exporter, iteration, type SpanSent } from './otlp';
import type { RealServer } from './server';
import { fits } from './width';

test.use({ world: 'timeline' });

const HOSTILE = '<img src=x onerror=alert(1)>';
const RANKS = 9;
const STEPS = 12;
/** Every step is this long on every rank: who works less waits for the others. */
const STEP_SECONDS = 1.4;
const NOW = Date.now() - 60_000;
/** The clock of the last host is ahead. */
const AHEAD_MS = 40;
const host = (rank: number) => `host-${Math.floor(rank / 3) + 1}`;
const startOf = (step: number) => NOW + step * STEP_SECONDS * 1000;

function stepOf(rank: number, step: number): SpanSent[] {
  const work = (rank === 5 ? 1.25 : 1) + 0.002 * Math.sin(rank * 7.3 + step);
  const parts = { forward_backward: work, communication: 1.3 - work, optimizer: 0.05, rest: 0.05 };
  return iteration(step, startOf(step) + (rank >= 6 ? AHEAD_MS : 0), parts);
}

const exporter = (server: RealServer, run: string, rank: number, world: number) =>
  new Exporter(server.url, { run, rank, world, host: host(rank), startMs: NOW - 10_000 });

const TRACE = 'ab'.repeat(16);
const STACK = Array.from({ length: 40 }, (_, at) => `  File "train.py", line ${at}`).join('\n');
/** A span of the last step that has all that a span may have. */
function rich(): SpanSent[] {
  const startMs = startOf(STEPS) + 1360;
  const attributes: Record<string, string | number> = {};
  for (let at = 0; at < 60; at++) attributes[`key.${String(at).padStart(5, '0')}`] = at;
  return [
    {
      name: HOSTILE,
      id: '00000000000000aa',
      trace: TRACE,
      startMs,
      endMs: startMs + 20,
      error: `NCCL timeout ${HOSTILE}`,
      attributes: { ...attributes, [HOSTILE]: `${HOSTILE}\u202e` },
      events: [
        { name: `exception ${HOSTILE}`, ms: startMs + 5, attributes: { 'exception.stacktrace': STACK } },
      ],
      links: [{ trace: TRACE, id: '00000000000000bb' }],
    },
    {
      name: 'linked',
      id: '00000000000000bb',
      trace: TRACE,
      startMs: startMs + 22,
      endMs: startMs + 30,
      links: [{ trace: TRACE, id: '00000000000000aa' }],
    },
  ];
}

test.beforeAll(async ({ server }) => {
  for (let rank = 0; rank < RANKS; rank++) {
    const spans = Array.from({ length: STEPS }, (_, at) => stepOf(rank, at + 1)).flat();
    await exporter(server, 'nine', rank, RANKS).spans([...spans, ...(rank === 0 ? rich() : [])]);
  }
  await exporter(server, 'off', 0, 4).metrics([{ ms: NOW, loss: 1 }]);
  await exporter(server, 'jobs', 0, 1).spans([
    { name: 'megatron.startup', startMs: NOW, endMs: NOW + 4000 },
    { name: 'megatron.checkpoint.save', startMs: NOW + 9000, endMs: NOW + 12_000 },
  ]);
});

async function openTimeline(page: Page, server: RealServer, run: string, query = ''): Promise<void> {
  await page.goto(`${server.url}/r/${await runId(server, run)}${query}`);
  await page.getByRole('link', { name: 'Timeline' }).click();
  await expect(page).toHaveURL(/\/timeline/);
}

const field = (page: Page) => page.getByRole('application');
const said = (page: Page) => field(page).locator('[aria-live]');
const detail = (page: Page) => page.getByRole('region', { name: 'The chosen span' });
const plane = (page: Page) => page.getByRole('region', { name: 'Spans over time' });
const count = (page: Page) => page.getByRole('status').filter({ hasText: /spans/ });
const step = (page: Page) => page.getByRole('textbox', { name: 'Step' });
/** Opens it with the keys in the lanes. */
async function enter(page: Page): Promise<void> {
  await expect(count(page)).toContainText(/[1-9]\d* spans/);
  await field(page).focus();
}

test('the newest step is shown, the slow rank first, on clocks that agree', async ({ page, server }) => {
  await openTimeline(page, server, 'nine');
  await expect(step(page)).toHaveValue('12');
  await expect(count(page)).toContainText(`${RANKS * 4 + 2} spans`);
  await expect(plane(page)).toContainText(
    /rank 5 on host-2 works 1\.2\d × as long as the median of the others/,
  );
  await expect(plane(page).locator('.gutter > span').first()).toContainText('rank 5');
  await expect(plane(page)).toContainText(/host-3 shifted by −40(\.\d)?\sms/);
  await expect(detail(page).getByRole('row', { name: /communication/ })).toContainText(
    /(299|30[01])\.\d\sms/,
  );
  await page.getByRole('button', { name: 'rank', exact: true }).click();
  await expect(page).toHaveURL(/order=rank/);
  await expect(plane(page).locator('.gutter > span').first()).toContainText('rank 0');
  await clean(page);
});

test('steps are turned by keys and typed, and the address holds the step', async ({ page, server }) => {
  await openTimeline(page, server, 'nine');
  await expect(step(page)).toHaveValue('12');
  await page.keyboard.press(',');
  await expect(step(page)).toHaveValue('11');
  await expect(page).toHaveURL(/step=11/);
  await expect(count(page)).toContainText(`${RANKS * 4} spans`);
  await page.keyboard.press('.');
  await expect(step(page)).toHaveValue('12');
  await expect(page.getByRole('button', { name: 'Step after' })).toBeDisabled();
  await step(page).fill('3');
  await step(page).press('Enter');
  await expect(page).toHaveURL(/step=3/);
  await page.reload();
  await expect(step(page)).toHaveValue('3');
  await step(page).fill('4000');
  await step(page).press('Enter');
  await expect(plane(page)).toContainText('The run has iterations 1 to 12, not 4000.');
  await page.getByRole('button', { name: 'Show the newest step' }).click();
  await expect(step(page)).toHaveValue('12');
});

test('keys move from span to span, and one is told against the other ranks', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7');
  await enter(page);
  await page.keyboard.press('ArrowRight');
  await expect(said(page)).toHaveText(
    /^rank 5 on host-2: megatron\.train\.iteration, iteration, 1\.400\ss from 0/,
  );
  await page.keyboard.press('ArrowDown');
  await expect(said(page)).toHaveText(/^rank 5 .*forward_backward, forward, backward, 1\.2[45]\d\ss from 0/);
  await page.keyboard.press('ArrowRight');
  await expect(said(page)).toHaveText(/^rank 5 .*grad_sync\.finish, communication, [45]\d\.\d+\sms/);
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/span=[0-9a-f]{32}\.[0-9a-f]{16}-[0-9]+\.nine-rank5/);
  await expect(detail(page)).toContainText(/1\.2\d × median 1(\.00\d)?\ss of 8/);
  await expect(detail(page)).toContainText('within megatron.train.iteration');
  await page.reload();
  await expect(detail(page)).toContainText('rank 5 on host-2');
  await detail(page).getByRole('button', { name: 'megatron.train.iteration' }).click();
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText('megatron.train.iteration');
  await page.keyboard.press('Escape');
  await expect(detail(page)).toContainText('No span is chosen');
  await expect(page).not.toHaveURL(/span=/);
});

test('n and N go through the spans of a kind, lane by lane', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7&order=rank');
  await enter(page);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await expect(detail(page)).toContainText('rank 0 on host-1');
  await page.keyboard.press('n');
  await expect(detail(page)).toContainText('rank 1 on host-1');
  await page.keyboard.press('n');
  await expect(detail(page)).toContainText('rank 2 on host-1');
  await page.keyboard.press('N');
  await expect(detail(page)).toContainText('rank 1 on host-1');
  await page.keyboard.press('/');
  await page.keyboard.type('optimizer');
  await expect(page).toHaveURL(/find=optimizer/);
  await page.keyboard.press('Enter');
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText(/optimizer$/);
});

test('zooms are in the address, and one goes back', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7');
  await enter(page);
  const box = (await field(page).boundingBox())!;
  await page.keyboard.press('w');
  await expect(page).toHaveURL(/t0=\d+.*&t1=\d+/);
  const first = page.url();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 10);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, box.y + 10, { steps: 4 });
  await page.mouse.up();
  await expect(page).not.toHaveURL(first);
  const zoomed = page.url();
  await page.keyboard.press('d');
  await expect(page).not.toHaveURL(zoomed);
  await page.keyboard.press('Backspace');
  await expect(page).toHaveURL(zoomed);
  await page.reload();
  await expect(page).toHaveURL(zoomed);
  await expect(page.locator('.minimap .part')).toBeVisible();
  await page.keyboard.press('0');
  await expect(page).not.toHaveURL(/t0=/);
  await expect(page.locator('.minimap .part')).toHaveCount(0);
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, -200);
  await page.keyboard.up('Control');
  await expect(page).toHaveURL(/t0=/);
});

test('a click chooses what is under the pointer, and a name opens its rows', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7&order=rank');
  await enter(page);
  const box = (await field(page).boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.3, box.y + 6);
  await expect(page.locator('.tip')).toContainText('forward_backward');
  await page.mouse.click(box.x + box.width * 0.3, box.y + 6);
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText(/forward_backward$/);
  await page.locator('.gutter > span').first().click();
  await expect(page).toHaveURL(/open=0/);
  await page.mouse.click(box.x + box.width * 0.3, box.y + 6);
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText('megatron.train.iteration');
  await page.getByRole('button', { name: 'nested' }).click();
  await expect(page).toHaveURL(/nest=1/);
  await expect(page).not.toHaveURL(/open=/);
});

test('a span with an error, links and events is told whole and does no harm', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=12&find=img');
  await enter(page);
  await page.keyboard.press('n');
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText(HOSTILE);
  await expect(detail(page)).toContainText(`error: NCCL timeout ${HOSTILE}`);
  await expect(detail(page)).toContainText(`exception ${HOSTILE}`);
  expect(await detail(page).locator('pre').textContent()).toBe(STACK);
  const attributes = page.getByRole('region', { name: 'Attributes' });
  await page.getByRole('searchbox', { name: 'Filter attributes' }).fill('img');
  await expect(attributes).toContainText(`${HOSTILE}\\u202e`);
  await expect(page.locator('main img')).toHaveCount(0);
  await clean(page);
  await detail(page).getByRole('button', { name: 'linked' }).first().click();
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText('linked');
  await detail(page).getByRole('listitem').filter({ hasText: 'pointed to by' }).getByRole('button').click();
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText(HOSTILE);
});

test('of ten thousand attributes only those that are seen are in the page', async ({ page, server }) => {
  await page.route(/part=span&/, async (route) => {
    const answer = (await (await route.fetch()).json()) as SpanAnswer;
    answer.span.attributes = Array.from({ length: 10_000 }, (_, at) => [`key.${at}`, at]);
    answer.span.attributes.push(['long', 'x'.repeat(1_000_000)]);
    await route.fulfill({ json: answer });
  });
  await openTimeline(page, server, 'nine', '?step=7');
  await enter(page);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  const attributes = page.getByRole('region', { name: 'Attributes' });
  await expect(attributes).toContainText('key.3');
  expect(await attributes.locator('dt').count()).toBeLessThan(40);
  await attributes.evaluate((list) => list.scrollTo(0, list.scrollHeight));
  await expect(attributes).toContainText('key.9999');
  expect((await attributes.textContent())!.length).toBeLessThan(2000);
  await page.getByRole('searchbox', { name: 'Filter attributes' }).fill('key.777');
  await expect(attributes.locator('dt')).toHaveText([
    'key.777',
    ...Array.from({ length: 10 }, (_, at) => `key.777${at}`),
  ]);
});

test('it is told that texts are kept which only an admin may read', async ({ page, server }) => {
  await page.route(/part=spans?&/, async (route) => {
    const answer = (await (await route.fetch()).json()) as object;
    await route.fulfill({ json: { ...answer, texts_hidden: true } });
  });
  await openTimeline(page, server, 'nine', '?step=7');
  await expect(plane(page)).toContainText('are kept of this run; only a token of an admin may read them');
  await enter(page);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await expect(detail(page)).toContainText('are kept of this span; only a token of an admin may read them');
});

test('a span in another step leads there', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7&order=rank');
  await enter(page);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await expect(detail(page)).toContainText('rank 0');
  await expect(page).toHaveURL(/span=/);
  const key = new URL(page.url()).searchParams.get('span')!;
  await openTimeline(page, server, 'nine', `?step=3&span=${encodeURIComponent(key)}`);
  await detail(page).getByRole('button', { name: 'Open step 7' }).click();
  await expect(step(page)).toHaveValue('7');
  await expect(detail(page)).not.toContainText('not in what is shown');
  // An address that names the span alone opens its step by itself.
  await openTimeline(page, server, 'nine', `?span=${encodeURIComponent(key)}`);
  await expect(step(page)).toHaveValue('7');
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText('megatron.train.iteration');
});

test('ranks are chosen by number or host, and what is no rank is told', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7');
  const ranks = page.getByRole('combobox', { name: 'Ranks' });
  await ranks.fill('0-1,5');
  await ranks.press('Enter');
  await expect(count(page)).toContainText(`${3 * 4} spans`);
  await ranks.fill('@host-3');
  await ranks.press('Enter');
  await expect(page).toHaveURL(/ranks=%40host-3/);
  await expect(plane(page).locator('.gutter')).toHaveText(/rank 6.*rank 7.*rank 8/);
  await ranks.fill('<x>');
  await ranks.press('Enter');
  await expect(page.getByText('ranks are such as 0-7,12 or @host: all are shown')).toBeVisible();
  await expect(count(page)).toContainText(`${RANKS * 4} spans`);
});

test('what is shown can be read as a table, parents above their children', async ({ page, server }) => {
  await openTimeline(page, server, 'nine', '?step=7&ranks=0');
  await enter(page);
  await page.keyboard.press('v');
  const rows = page.getByRole('dialog').getByRole('row');
  await expect(rows).toHaveCount(5);
  await expect(rows.nth(1)).toContainText(/rank 0 on host-1.*megatron\.train\.iteration.*iteration.*0—/);
  await expect(rows.nth(2)).toContainText(/forward_backward.*forward, backward.*1—/);
  await clean(page);
  await rows.nth(3).getByRole('button').click();
  await expect(detail(page).getByRole('heading', { level: 2 })).toHaveText(/grad_sync\.finish$/);
});

test('without spans the page says which switch sends them', async ({ page, server }) => {
  await openTimeline(page, server, 'off');
  await expect(page.getByRole('heading', { name: 'Spans are off' })).toBeVisible();
  await expect(page.locator('pre')).toHaveText('MEGATRON_OTEL_SPAN_GROUPS=per_step');
  await clean(page);
});

test('spans of no step are shown over the whole run, and the switch for steps is named', async ({
  page,
  server,
}) => {
  await openTimeline(page, server, 'jobs');
  await expect(count(page)).toContainText('2 spans');
  await expect(plane(page)).toContainText('MEGATRON_OTEL_SPAN_GROUPS=per_step');
  await expect(plane(page).locator('.legend')).toContainText('checkpoint');
  await openTimeline(page, server, 'nine', '?whole=1');
  await expect(count(page)).toContainText(`${RANKS * STEPS * 4 + 2} spans`);
  await expect(page.getByRole('button', { name: 'whole run' })).toHaveAttribute('aria-pressed', 'true');
});

test('a newer step shows up by itself until something is held', async ({ page, server }) => {
  const trainer = exporter(server, 'growing', 0, 1);
  await trainer.spans(stepOf(0, 1));
  await openTimeline(page, server, 'growing');
  await expect(step(page)).toHaveValue('1');
  await trainer.spans(stepOf(0, 2));
  await expect(step(page)).toHaveValue('2');
  await enter(page);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/step=2/);
  const newer = page.waitForResponse((answer) => /runs\/[0-9a-f]{16}$/.test(answer.url()));
  await trainer.spans(stepOf(0, 3));
  await newer;
  await expect(step(page)).toHaveValue('2');
});

test('a hundred thousand spans are drawn, and what is smaller than a pixel is counted', async ({
  page,
  server,
}) => {
  const made = madeSpans({ ranks: 64, microbatches: 100, layers: 7 });
  await page.route(/part=spans/, (route) => route.fulfill({ json: made }));
  await openTimeline(page, server, 'nine');
  await expect(count(page)).toContainText('102,720 spans');
  const box = (await field(page).boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.3, box.y + 6);
  await expect(page.locator('.tip')).toContainText(/\d+ spans in [\d.]+\sms/);
  await page.mouse.click(box.x + box.width * 0.3, box.y + 6);
  await expect(page).toHaveURL(/t0=/);
  await page.mouse.move(box.x + box.width * 0.5, box.y + 7);
  await expect(page.locator('.tip')).toContainText('megatron.layer.forward');
});

test('an error is told, and asking again helps', async ({ page, server }) => {
  await page.route(/part=spans/, (route) =>
    route.fulfill({
      status: 503,
      json: { error: { code: 'busy', message: 'too many questions', request_id: 'r-9' } },
    }),
  );
  await openTimeline(page, server, 'nine');
  await expect(page.getByRole('alert')).toContainText('cannot read: 503 too many questions');
  await page.unroute(/part=spans/);
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(step(page)).toHaveValue('12');
  await expect(page.getByRole('alert')).toHaveCount(0);
});

for (const theme of ['light', 'dark']) {
  test(`the page is clean for axe and flows into 320 pixels, ${theme}`, async ({ page, server }) => {
    await openTimeline(page, server, 'nine', `?theme=${theme}&step=7`);
    await enter(page);
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await expect(detail(page)).toContainText('rank 5');
    await clean(page);
    await page.setViewportSize({ width: 320, height: 800 });
    await fits(page, 320);
    await clean(page);
  });
}
