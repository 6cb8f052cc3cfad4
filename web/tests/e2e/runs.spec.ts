/** The list of runs, from the real server. */
import { card, expect, runId, test } from './fixture';
import { curve, Writer } from './push';

const HOSTILE = '<img src=x onerror=alert(1)>';

test.use({ world: 'runs' });

const SCOPE = { organization: 'acme', workspace: 'research', project: 'llm' };

test.beforeAll(async ({ server }) => {
  const now = Date.now();
  for (const [at, run] of ['first', 'alpha', 'beta', 'gamma'].entries()) {
    const writer = new Writer(server.url);
    const points = curve(20 * (at + 1), now - 1000, () => at);
    await writer.push({
      ...SCOPE,
      run,
      event: 1,
      timeMs: now - 60_000 * (at + 1),
      tags: run === 'beta' ? ['sweep'] : [],
      series: [{ name: 'loss', points }],
    });
    if (run === 'gamma') await writer.push({ ...SCOPE, run, event: 4, reason: 'out of memory' });
  }
});

test('filter, state and sort ask the server and live in the address', async ({ page, server }) => {
  await page.goto(`${server.url}/o/acme/research/llm/runs`);
  const names = page.locator('.run-link');
  await expect(names).toHaveCount(4);
  await page.keyboard.press('/');
  await page.keyboard.type('tag:sweep ');
  await expect(names).toHaveText(['beta']);
  await expect(page).toHaveURL(/f=tag%3Asweep/);
  await page.keyboard.press('Backspace');
  await page.keyboard.press('Escape');
  await expect(names).toHaveCount(4);
  await page.getByRole('button', { name: /failed 1/ }).click();
  await expect(names).toHaveText(['gamma']);
  await page.getByRole('button', { name: /^All/ }).click();
  await page.getByRole('button', { name: 'Step', exact: true }).click();
  await expect(names).toHaveText(['gamma', 'beta', 'alpha', 'first']);
  await page.getByRole('button', { name: 'Step', exact: true }).click();
  await expect(names).toHaveText(['first', 'alpha', 'beta', 'gamma']);
  await expect(page).toHaveURL(/sort=step/);
  await page.goto(`${server.url}/runs?f=stat:running`);
  await expect(page.getByText(/unknown key stat, nearest state/)).toBeVisible();
  await expect(page.locator('.token.unknown')).toHaveCount(1);
});

test('figures stand in columns of their own, a dash says why there is none', async ({ page, server }) => {
  const now = Date.now();
  const writer = new Writer(server.url);
  const run = { project: 'figures', run: 'steps' };
  await writer.push({ ...run, event: 1, timeMs: now - 60_000 });
  await writer.push({
    ...run,
    event: 2,
    timeMs: now,
    series: [{ name: 'train_step_seconds', labels: { rank: '0' }, points: curve(50, now, () => 0.9) }],
  });
  await page.goto(`${server.url}/runs?f=project:figures`);
  const row = page.getByRole('row').filter({ hasText: 'steps' });
  await expect(row.locator('.c-ettr')).toHaveText(/^0\.[5-9]\d$/);
  await expect(row.locator('.c-ettr > span')).toHaveAttribute('title', /time of steps that count/);
  await expect(row.locator('.c-cost')).toHaveText('—');
  await expect(row.locator('.c-cost > span')).toHaveAttribute('title', /no process .* has a GPU/);
  await expect(row.locator('.c-mfu > span')).toHaveAttribute('title', /no step says its tokens/);
  await page.goto(`${server.url}/runs?f=project:figures&cols=state,run`);
  await expect(row).toBeVisible();
  await expect(page.locator('.c-cost')).toHaveCount(0);
});

test('a view is saved under a name, chosen again and forgotten', async ({ page, server }) => {
  const names = page.locator('.run-link');
  await page.goto(`${server.url}/o/acme/research/llm/runs?f=tag:sweep`);
  await expect(names).toHaveText(['beta']);
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByRole('menuitem', { name: 'Save this view' }).click();
  await page.getByRole('textbox', { name: 'Name of the view' }).fill(HOSTILE);
  await page.keyboard.press('Enter');
  const chosen = page.getByRole('button', { name: '<img' });
  await expect(chosen).toBeVisible();
  await page.goto(`${server.url}/o/acme/research/llm/runs`);
  await expect(names).toHaveCount(4);
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByRole('menuitemcheckbox', { name: '<img' }).click();
  await expect(names).toHaveText(['beta']);
  await expect(page).toHaveURL(/f=tag%3Asweep/);
  await chosen.click();
  await page.getByRole('menuitem', { name: /Forget/ }).click();
  await expect(page.getByRole('button', { name: 'Views' })).toBeVisible();
  await expect(page.locator('main img')).toHaveCount(0);
});

test('a hostile name is text everywhere', async ({ page, server }) => {
  await new Writer(server.url).push({
    organization: 'o',
    workspace: 'w',
    project: HOSTILE,
    run: HOSTILE,
    event: 1,
    tags: [HOSTILE],
    attributes: { [HOSTILE]: HOSTILE },
    series: [
      { name: HOSTILE, labels: { kind: HOSTILE }, points: curve(5, Date.now(), (s) => s) },
      { name: HOSTILE, labels: { kind: 'b\u202e' }, points: curve(5, Date.now(), (s) => s) },
    ],
  });
  await page.goto(`${server.url}/runs`);
  await expect(page.getByRole('link', { name: HOSTILE })).toBeVisible();
  await expect(page.locator('.tag', { hasText: '<img' })).toBeVisible();
  await page.getByRole('link', { name: HOSTILE }).first().click();
  await expect(page.getByRole('heading', { level: 1, name: HOSTILE })).toBeVisible();
  await expect(card(page, HOSTILE).locator('canvas')).toBeVisible();
  await expect(card(page, HOSTILE)).toContainText('b\\u202e');
  await page.getByRole('link', { name: 'Overview' }).click();
  await expect(page.getByRole('rowheader', { name: HOSTILE })).toBeVisible();
  await expect(page.locator('img')).toHaveCount(0);
});

test('tags are edited in place', async ({ page, server }) => {
  await page.goto(`${server.url}/o/acme/research/llm/runs?f=alpha`);
  await expect(page.locator('.run-link')).toHaveText(['alpha']);
  await page.keyboard.press('t');
  await page.getByRole('textbox', { name: /Add a tag/ }).fill('kept');
  await page.keyboard.press('Enter');
  await expect(page.locator('.tag')).toContainText(['kept']);
  await page.keyboard.press('Escape');
  await page.reload();
  await expect(page.locator('.tag')).toHaveText(['kept']);
});

test('deleted runs come back with undo', async ({ page, server }) => {
  await page.goto(`${server.url}/o/acme/research/llm/runs`);
  const names = page.locator('.run-link');
  await expect(names).toHaveCount(4);
  await page.getByRole('checkbox', { name: 'Select alpha' }).check();
  await page.getByRole('checkbox', { name: 'Select beta' }).check();
  await expect(page.getByRole('toolbar')).toContainText('2 selected');
  await page.getByRole('button', { name: /Delete/ }).click();
  await expect(page.getByText('Deleted 2 runs')).toBeVisible();
  await expect(names).toHaveCount(2);
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(names).toHaveCount(4);
  expect(await runId(server, 'alpha')).toMatch(/^[0-9a-f]{16}$/);
});

test('keys move, open and are listed in the sheet', async ({ page, server }) => {
  await page.goto(`${server.url}/o/acme/research/llm/runs?sort=name`);
  await expect(page.locator('.run-link')).toHaveText(['alpha', 'beta', 'first', 'gamma']);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog')).toContainText('Open the run');
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('beta');
  await page.keyboard.press('g');
  await page.keyboard.press('r');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Runs');
});

test('a key right after a window is left acts on the page', async ({ page, server }) => {
  await page.goto(`${server.url}/o/acme/research/llm/runs?sort=name`);
  await expect(page.locator('.run-link')).toHaveText(['alpha', 'beta', 'first', 'gamma']);
  await page.keyboard.press('?');
  await expect(page.getByRole('button', { name: 'Close' })).toBeFocused();
  await page.evaluate(async () => {
    document.querySelector('dialog')?.requestClose();
    await Promise.resolve();
    const press = (key: string) =>
      document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    press('j');
    press('Enter');
  });
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('beta');
});

test('the theme is switched, kept and in the address', async ({ page, server }) => {
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.goto(`${server.url}/runs`);
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  await page.getByRole('button', { name: /Theme: system/ }).click();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'light');
  await expect(page).toHaveURL(/theme=light/);
  await page.goto(`${server.url}/runs`);
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'light');
});
