/** A server that asks for a token. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test as base, expect } from '@playwright/test';
import { clean } from './axe';
import { Writer } from './push';
import { startServer } from './server';

base('a page asks for the token once, and then shows what it protects', async ({ page }) => {
  const server = await startServer(['--token', 'correct-horse']);
  try {
    await page.goto(`${server.url}/runs`);
    const field = page.getByLabel('Token', { exact: true });
    await field.fill('wrong');
    await page.keyboard.press('Enter');
    await expect(page.getByRole('dialog').getByRole('alert')).toContainText('no token of this server');
    await field.fill('correct-horse');
    await page.keyboard.press('Enter');
    await expect(page.getByText('waiting for the first point')).toBeVisible();
    await page.reload();
    await expect(page.getByText('waiting for the first point')).toBeVisible();
  } finally {
    await server.stop();
  }
});

base('a link logs in once, the bar says who one is, and logging out ends it', async ({ page, request }) => {
  const server = await startServer(['--token', 'correct-horse']);
  try {
    const made = await request.post(`${server.url}/api/tg/v1/login-links`, {
      headers: { authorization: 'Bearer correct-horse' },
    });
    const { path } = (await made.json()) as { path: string };
    await page.goto(server.url + path);
    await expect(page.getByText('waiting for the first point')).toBeVisible();
    await expect(page).toHaveURL(`${server.url}/runs`);
    await page.goBack();
    await expect(page).not.toHaveURL(/#/);
    await page.goto(`${server.url}/runs`);
    await clean(page);
    const who = page.getByRole('button', { name: /^Logged in as server: admin/ });
    await who.click();
    await page.getByRole('menuitem', { name: 'Log out' }).click();
    await expect(page.getByLabel('Token', { exact: true })).toBeVisible();
    await expect(who).toHaveCount(0);
    await page.goto(server.url + path);
    await expect(page.getByRole('alert')).toContainText('used already');
    await expect(page.getByRole('dialog')).toHaveCount(0);
    await clean(page);
  } finally {
    await server.stop();
  }
});

base('who may only read sees the silences and is told what ending one takes', async ({ page }) => {
  const folder = mkdtempSync(join(tmpdir(), 'truegauge-token-'));
  const rules = join(folder, 'rules.yml');
  writeFileSync(rules, 'groups: [{name: g, interval: 1s, rules: [{alert: Always, expr: vector(1) > 0}]}]\n');
  const server = await startServer(['--token', 'correct-horse', '--rule-files', rules]);
  const admin = { authorization: 'Bearer correct-horse', 'content-type': 'application/json' };
  const post = async (path: string, body: object) => {
    const init = { method: 'POST', headers: admin, body: JSON.stringify(body) };
    return (await (await fetch(`${server.url}/api/tg/v1/${path}`, init)).json()) as { token?: string };
  };
  try {
    const matchers = [{ name: 'alertname', value: 'Other', is_regex: false, is_equal: true }];
    await post('silences', {
      matchers,
      ends_at: Date.now() + 3_600_000,
      comment: 'image rollout',
      created_by: 'x',
    });
    const { token } = await post('tokens', { name: 'ada', scopes: ['read'] });
    await page.goto(`${server.url}/alerts?tab=silenced`);
    await page.getByLabel('Token', { exact: true }).fill(token ?? '');
    await page.keyboard.press('Enter');
    const end = page.getByRole('button', { name: 'End now' });
    await expect(end).toBeDisabled();
    await expect(end).toHaveAccessibleDescription('needs scope admin');
    await clean(page);
    await page.goto(`${server.url}/alerts`);
    await expect(page.getByRole('row', { name: /Always/ })).toBeVisible();
    await expect(page.getByRole('button', { name: 'Silence', exact: true })).toBeDisabled();
    await page.keyboard.press('s');
    await expect(page.getByRole('dialog')).toHaveCount(0);
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

base('queries are asked again once the token is there', async ({ page }) => {
  const server = await startServer(['--token', 'correct-horse']);
  try {
    await page.goto(`${server.url}/explore?q=vector(1)`);
    const field = page.getByLabel('Token', { exact: true });
    await field.fill('correct-horse');
    await page.keyboard.press('Enter');
    await expect(page.getByText(/^1 series · /)).toBeVisible();
    await expect(page.getByRole('heading', { name: 'Nothing is stored yet' })).toHaveCount(0);
    await expect(page.getByRole('alert')).toHaveCount(0);
  } finally {
    await server.stop();
  }
});

base('a server that goes away is told and found again', async ({ page }) => {
  const server = await startServer();
  await page.goto(`${server.url}/runs`);
  await expect(page.getByText('waiting for the first point')).toBeVisible();
  await server.stop();
  await expect(page.getByText(/not connected since/)).toBeVisible();
  const again = await startServer([], Number(new URL(server.url).port));
  try {
    await expect(page.getByText(/not connected since/)).toHaveCount(0);
    await new Writer(server.url).push({ run: 'back', event: 1 });
    await expect(page.locator('.run-link')).toHaveText(['back']);
  } finally {
    await again.stop();
  }
});
