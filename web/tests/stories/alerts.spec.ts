/** Pictures of the Alerts and Remediation pages, light and dark, to hold beside the design; and what they do. */
import { expect, type Page, test } from '@playwright/test';
import { clean } from '../e2e/axe';
import { fits } from '../e2e/width';
import { type AlertStory, tellAlerts } from './alerts';
import { startStories } from './server';
import { NOW } from './world';

let stories: Awaited<ReturnType<typeof startStories>>;

test.beforeAll(async () => {
  stories = await startStories(10);
});
test.afterAll(() => {
  stories.server.closeAllConnections();
  stories.server.close();
});
test.beforeEach(async ({ page }) => {
  await page.clock.setFixedTime(NOW);
});

const table = (page: Page) => page.getByRole('region', { name: 'Table of alerts' });
const shot = (page: Page, name: string) => page.screenshot({ path: `screenshots/${name}.png` });

async function openAlerts(page: Page, query: string, story: AlertStory = 'usual') {
  const sent = await tellAlerts(page, story);
  await page.goto(`${stories.url}/alerts${query}`);
  return sent;
}

for (const theme of ['light', 'dark']) {
  test(`alerts beside remediation, ${theme}`, async ({ page }) => {
    await openAlerts(page, `?theme=${theme}&side=remediation&test=14d`);
    await expect(table(page).getByRole('row')).toHaveCount(7);
    await expect(page.getByText('would have fired 3 times, 4 h 12 min in all')).toBeVisible();
    await expect(page.getByRole('complementary', { name: 'Remediation' })).toContainText(
      'Drain and reset host-3?',
    );
    await shot(page, `alerts-remediation-${theme}`);
    await clean(page);
  });

  test(`remediation, ${theme}`, async ({ page }) => {
    await tellAlerts(page, 'usual', 'real');
    await page.goto(`${stories.url}/remediation?theme=${theme}`);
    await expect(page.getByRole('region', { name: 'Approvals' })).toContainText('Drain and reset host-3?');
    await page.screenshot({ path: `screenshots/remediation-${theme}.png`, fullPage: true });
    await clean(page);
    await page.getByRole('button', { name: 'Decide…' }).click();
    await expect(page.getByRole('dialog')).toBeVisible();
    await shot(page, `remediation-decide-${theme}`);
    await clean(page);
  });

  test(`nothing fires, ${theme}`, async ({ page }) => {
    await openAlerts(page, `?theme=${theme}`, 'calm');
    await expect(
      page.getByText('Nothing fires. 34 rules, last evaluation 4 s ago, 41 of 41 delivered.'),
    ).toBeVisible();
    await shot(page, `alerts-calm-${theme}`);
    await clean(page);
  });

  test(`a storm is one row, and the breaker is told of, ${theme}`, async ({ page }) => {
    await openAlerts(page, `?theme=${theme}`, 'storm');
    await expect(
      page.getByText('500 alerts of one cause: the breaker is open at 30 % newly bad'),
    ).toBeVisible();
    await expect(table(page).getByRole('row')).toHaveCount(3);
    await table(page)
      .getByRole('button', { name: /500 alerts, one cause/ })
      .click();
    await expect(table(page)).toContainText('480 further alerts of this cause');
    await shot(page, `alerts-storm-${theme}`);
    await clean(page);
  });

  test(`hostile names stay text, ${theme}`, async ({ page }) => {
    const dialogs: string[] = [];
    page.on('dialog', (dialog) => {
      dialogs.push(dialog.message());
      void dialog.dismiss();
    });
    await openAlerts(page, `?theme=${theme}&side=remediation`, 'hostile');
    await expect(table(page)).toContainText('\\u001b[31m');
    await shot(page, `alerts-hostile-${theme}`);
    await clean(page);
    await page.goto(`${stories.url}/remediation?theme=${theme}`);
    await expect(page.getByRole('region', { name: 'Approvals' })).toContainText('Drain <img');
    await page.getByRole('button', { name: 'Decide…' }).click();
    await expect(page.getByRole('list', { name: 'Commands' })).toContainText('\\u202e\\n');
    await shot(page, `remediation-hostile-${theme}`);
    await clean(page);
    expect(dialogs).toEqual([]);
  });

  test(`every tab and window can be read, ${theme}`, async ({ page }) => {
    await openAlerts(page, `?theme=${theme}&tab=rules`);
    await expect(page.getByRole('region', { name: 'Table of rules' }).getByRole('row')).toHaveCount(6);
    await clean(page);
    await page.keyboard.press('[');
    await expect(page.getByRole('region', { name: 'Table of firings' })).toContainText('still fires');
    await shot(page, `alerts-history-${theme}`);
    await page.keyboard.press('/');
    await page.keyboard.type('severity:ticket ');
    await expect(page.getByRole('region', { name: 'Table of firings' }).getByRole('row')).toHaveCount(3);
    await page.getByRole('button', { name: 'Remove severity:ticket' }).click();
    await page.getByRole('heading', { name: 'Alerts' }).click();
    await clean(page);
    await page.keyboard.press('[');
    await expect(page.getByRole('region', { name: 'Silences' })).toContainText('image rollout');
    await clean(page);
    await page.keyboard.press('n');
    await expect(page.getByRole('dialog', { name: 'New rule' })).toBeVisible();
    await page.getByLabel('Expression').fill('model:itl_seconds:p99 > 0.5');
    await expect(page.getByRole('dialog').getByText('would have fired 3 times')).toBeVisible();
    await shot(page, `alerts-rule-${theme}`);
    await clean(page);
  });

  test(`remediation that is off says how to begin, ${theme}`, async ({ page }) => {
    await tellAlerts(page, 'off');
    await page.goto(`${stories.url}/remediation?theme=${theme}`);
    await expect(page.getByText('mode = "dry_run"')).toBeVisible();
    await shot(page, `remediation-off-${theme}`);
    await clean(page);
  });
}

test('a rule that fails is the first row', async ({ page }) => {
  await openAlerts(page, '?theme=light', 'broken');
  const errors = page.getByRole('list', { name: 'Rules that can’t be evaluated' });
  await expect(errors).toContainText('ItlTail');
  await expect(page.getByText('Delivered 39 of 41 today')).toBeVisible();
  await errors.getByRole('button', { name: 'ItlTail' }).click();
  await expect(page.getByRole('region', { name: 'The chosen rule' })).toContainText('would read too much');
  await shot(page, 'alerts-broken-light');
});

test('whoever may not know is told what is needed, once', async ({ page }) => {
  await openAlerts(page, '', 'forbidden');
  await expect(page.getByRole('alert').first()).toContainText('403');
  await clean(page);
  await page.goto(`${stories.url}/remediation`);
  await expect(page.getByRole('alert')).toContainText('needs the scope');
});

test('rows are moved through by keys, filtered by tokens, and the address tells', async ({ page }) => {
  await openAlerts(page, '');
  await expect(table(page).getByRole('row', { name: /StragglerPage/ })).toHaveAttribute(
    'aria-selected',
    'true',
  );
  await page.keyboard.press('j');
  await expect(table(page).getByRole('row', { name: /GoodputBelow/ })).toHaveAttribute(
    'aria-selected',
    'true',
  );
  await expect(page.getByRole('region', { name: 'The chosen rule' })).toContainText('GoodputBelowTarget');
  await expect(page).toHaveURL(/sel=/);
  const facts = page.getByRole('region', { name: 'The chosen rule' });
  await expect(facts.getByRole('link', { name: 'model chat-70b' })).toHaveAttribute(
    'href',
    '/inference/chat-70b',
  );
  await facts.getByRole('button', { name: 'model_name chat-70b' }).click();
  await expect(table(page).getByRole('row', { name: /Straggler/ })).toHaveCount(0);
  await page.getByRole('button', { name: 'Remove model_name:chat-70b' }).click();
  await page.keyboard.press('/');
  await page.keyboard.type('severity:ticket ');
  await expect(table(page).getByRole('row', { name: /Straggler/ })).toHaveCount(0);
  await expect(table(page).getByRole('row', { name: /KvFull/ })).toHaveCount(1);
  await page.reload();
  await expect(table(page).getByRole('row', { name: /KvFull/ })).toHaveCount(1);
});

test('a silence wants an end and a reason, and can be taken back', async ({ page }) => {
  const sent = await openAlerts(page, '');
  await expect(table(page)).toBeVisible();
  await page.keyboard.press('s');
  const window = page.getByRole('dialog');
  const silence = window.getByRole('button', { name: 'Silence', exact: true });
  await expect(silence).toBeDisabled();
  await window.getByRole('button', { name: '4 h' }).click();
  await expect(silence).toBeDisabled();
  await window.getByLabel('Reason').fill('fans are being changed');
  await window.getByRole('checkbox', { name: /rank=/ }).uncheck();
  await clean(page);
  await silence.click();
  await expect(page.getByText('Silenced 1 alert until')).toBeVisible();
  const [made] = sent;
  expect(made.path).toBe('silences');
  expect(made.body).toMatchObject({
    comment: 'fans are being changed',
    starts_at: NOW,
    ends_at: NOW + 4 * 3_600_000,
  });
  expect(JSON.stringify(made.body.matchers)).not.toContain('rank');
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect.poll(() => sent.at(-1)?.path).toBe('DELETE silences/s-2');
});

test('Enter is a dry run; for real wants the host’s name', async ({ page }) => {
  const sent = await tellAlerts(page, 'usual', 'real');
  await page.goto(`${stories.url}/remediation?act=a-1`);
  const window = page.getByRole('dialog');
  const real = window.getByRole('button', { name: 'Run for real' });
  await expect(real).toBeDisabled();
  await window.getByLabel(/^Type host-3/).fill('host-');
  await expect(real).toBeDisabled();
  await window.getByLabel(/^Type host-3/).fill('host-3');
  await expect(real).toBeEnabled();
  await window.getByLabel(/^Type host-3/).press('Enter');
  await expect.poll(() => sent.length).toBe(1);
  expect(sent[0]).toEqual({ path: 'remediation/a-1/approve', body: { dry_run: true, confirm: '' } });
  // The act goes on waiting, and the window says what was rehearsed.
  await expect(window.getByRole('status')).toHaveText('rehearsed by token ada');
  await window.getByRole('button', { name: 'Run for real' }).click();
  await expect(window).toHaveCount(0);
  await expect.poll(() => sent.length).toBe(2);
  expect(sent[1].body).toEqual({ dry_run: false, confirm: 'host-3' });
});

test('focus stays in the window, Escape leaves it, a rejection wants a reason', async ({ page }) => {
  const sent = await tellAlerts(page, 'usual', 'dry_run');
  await page.goto(`${stories.url}/remediation`);
  await page.getByRole('button', { name: 'Decide…' }).click();
  const window = page.getByRole('dialog');
  await expect(window.getByRole('button', { name: 'Run for real' })).toBeDisabled();
  await expect(window).toContainText('The server is in dry run');
  for (let n = 0; n < 12; n++) await page.keyboard.press('Tab');
  expect(
    await page.evaluate(
      () => document.activeElement === document.body || document.activeElement?.closest('dialog') !== null,
    ),
  ).toBe(true);
  await page.keyboard.press('Escape');
  await expect(window).toHaveCount(0);
  await page.getByRole('button', { name: 'Decide…' }).click();
  await window.getByRole('button', { name: 'Reject…' }).click();
  await expect(window.getByRole('button', { name: 'Reject', exact: true })).toBeDisabled();
  await window.getByLabel('Why not?').fill('the job ends tonight');
  await window.getByLabel('Why not?').press('Enter');
  await expect
    .poll(() => sent.at(-1))
    .toEqual({ path: 'remediation/a-1/reject', body: { reason: 'the job ends tonight' } });
});

test('the policy is replayed, and the audit leaves as a file', async ({ page }) => {
  await tellAlerts(page, 'usual');
  await page.goto(`${stories.url}/remediation`);
  await page.getByRole('button', { name: '7 days' }).click();
  await expect(
    page.getByText('fleet-default revision 7: 1 queued · 1 act, 4 edges from 12 events'),
  ).toBeVisible();
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export' }).click();
  expect((await download).suggestedFilename()).toBe('remediation-audit.csv');
});

test('the bar of every page tells what waits', async ({ page }) => {
  await tellAlerts(page, 'usual');
  await page.goto(`${stories.url}/runs`);
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await expect(pages.getByRole('link', { name: /Alerts/ })).toHaveText(/2 firing/);
  await expect(pages.getByRole('link', { name: /Remediation/ })).toHaveText(/1 waiting/);
  for (const [keys, path] of [
    ['ga', '/alerts'],
    ['gm', '/remediation'],
    ['gc', '/calc'],
  ]) {
    for (const key of keys) await page.keyboard.press(key);
    await expect(page).toHaveURL(new RegExp(`${path}$`));
  }
});

test('both pages are one column on a narrow screen', async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 800 });
  await openAlerts(page, '?side=remediation');
  await expect(table(page)).toBeVisible();
  await expect(page.getByRole('complementary', { name: 'Remediation' })).toBeVisible();
  await fits(page, 360);
  await page.goto(`${stories.url}/remediation`);
  await expect(page.getByRole('region', { name: 'Approvals' })).toContainText('Drain');
  await fits(page, 360);
});
