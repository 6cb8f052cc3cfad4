/** The Alerts and Remediation pages, read from the real server: rules that fire, a receiver, an incident and a policy. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { clean } from './axe';
import { test as base, expect, runId } from './fixture';
import { NodeWriter } from './node_push';
import { remoteWrite } from './remote_write';
import { type RealServer, startServer } from './server';
import { train } from './slow_run';

const HOSTILE = '<img src=x onerror=alert(1)>';
const MINUTE = 60_000;
/** Since when host-1 is slow. */
let slowSince = 0;

const RULES = `groups:
  - name: web
    interval: 1s
    rules:
      - alert: TooSlow
        expr: slow_seconds > 5
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.host }} takes {{ $value }} s"
          runbook_url: /docs/runbooks/TargetDown.md
      - alert: SoonSlow
        expr: slow_seconds > 3
        for: 1h
        labels: {severity: ticket}
      - alert: '${HOSTILE}'
        expr: slow_seconds > 6
        labels: {severity: info, odd: '${HOSTILE}'}
      - alert: Ambiguous
        expr: slow_seconds * on (job) slow_seconds > 0
        labels: {severity: ticket}
`;

const TESTS = `rule_files: [../rules.yml]
tests:
  - interval: 1m
    input_series:
      - series: slow_seconds{host="a"}
        values: 7x10
    alert_rule_test:
      - eval_time: 5m
        alertname: TooSlow
        exp_alerts:
          - exp_labels: {host: a, severity: page}
            exp_annotations:
              summary: a takes 7 s
              runbook_url: /docs/runbooks/TargetDown.md
`;

const receivers = (port: number) => `[route]
receiver = "ops"
group_wait = "100ms"

[[receivers]]
name = "ops"
kind = "webhook"
url = "http://127.0.0.1:${port}/hook"
`;

const policy = (folder: string) => `name = "web"
revision = 3

[guards]
budget_min = 1

[[pools]]
name = "train"
hosts = ["host-*"]

[programs]
note = "${folder}/note"

${['reset_gpu', 'drain_reset', 'reboot_node', 'restart_vm', 'contact', 'inspect', 'straggler']
  .map(
    (on) => `[[actions]]
name = "act-on-${on.replace('_', '-')}"
on = "${on}"
mode = "approve"
commands = [{ exec = "note", args = ["{host}"${on === 'straggler' ? '' : ', "{gpu}"'}], limit = "10s" }]
`,
  )
  .join('\n')}`;

/** A receiver that keeps what it is told. */
function listen(told: string[]): Promise<Server> {
  const server = createServer(async (request, answer) => {
    let text = '';
    for await (const piece of request) text += piece;
    told.push(text);
    answer.writeHead(200).end();
  });
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done(server)));
}

/** Rules, policy and what its program wrote. */
let folder = '';
const told: string[] = [];

const test = base.extend<object, { server: RealServer }>({
  server: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright wants a pattern.
    async ({}, use) => {
      folder = mkdtempSync(join(tmpdir(), 'truegauge-alerts-'));
      const receiver = await listen(told);
      const file = (name: string, text: string, mode = 0o644) => {
        writeFileSync(join(folder, name), text, { mode });
        return join(folder, name);
      };
      mkdirSync(join(folder, 'tests'));
      file('tests/rules.yml', TESTS);
      file('note', `#!/bin/sh\necho "$@" >> '${folder}/ran'\n`, 0o755);
      const server = await startServer([
        ...['--rule-files', file('rules.yml', RULES)],
        ...[
          '--alerting-receivers-file',
          file('to.toml', receivers((receiver.address() as AddressInfo).port)),
        ],
        ...['--remediation-policy-file', file('policy.toml', policy(folder))],
        ...['--remediation-mode', 'real', '--remediation-interval', '1s'],
      ]);
      await tell(server.url);
      await use(server);
      await server.stop();
      receiver.close();
      rmSync(folder, { recursive: true, force: true });
    },
    { scope: 'worker' },
  ],
});

test.use({ world: 'alerts' });

const slowSample = (host: string, ms: number) => ({ ms, value: host === 'host-1' && ms > slowSince ? 7 : 1 });
const slowLabels = (host: string) => ({ __name__: 'slow_seconds', host, job: 'j' });

// A value is out of sight five minutes after its sample, so that each test has one of its own.
test.beforeEach(async ({ server }) => {
  const one = (host: string) => ({ labels: slowLabels(host), samples: [slowSample(host, Date.now())] });
  await remoteWrite(server.url, [one('host-1'), one('host-2')]);
});

/** A host that is slow, another that is not, and a card that fell off its bus. */
async function tell(url: string): Promise<void> {
  const now = Date.now();
  slowSince = now - 40 * MINUTE;
  const one = (host: string) => {
    const samples = Array.from({ length: 361 }, (_, i) => slowSample(host, now - (360 - i) * 20_000));
    return { labels: slowLabels(host), samples };
  };
  await remoteWrite(url, [one('host-1'), one('host-2')]);
  for (const host of ['host-1', 'host-3']) {
    const agent = new NodeWriter(url, host);
    const look = (ms: number, events: Parameters<NodeWriter['push']>[1] = []) =>
      agent.push(
        [
          { name: 'tg_node_gpus', labels: { source: 'pci' }, points: [{ ms, value: 2 }] },
          {
            name: 'tg_gpu_info',
            labels: { gpu: '1', uuid: `GPU-${host}`, pci_bus_id: '00000000:2B:00.0', vendor: 'nvidia' },
            points: [{ ms, value: 1 }],
          },
        ],
        events,
      );
    await look(Date.now());
    if (host !== 'host-3') continue;
    const ms = Date.now();
    await look(ms + 10, [
      {
        ms,
        kind: 'xid',
        severity: 'critical',
        key: 'boot:79',
        labels: { source: 'kernel', gpu: '1', uuid: 'GPU-host-3', pci_bus_id: '00000000:2B:00.0' },
        text: `NVRM: Xid (PCI:0000:2b:00): 79, pid=1234, name=${HOSTILE}, GPU has fallen off the bus.`,
        body: { xid: 79, message: 'GPU has fallen off the bus.', pid: 1234, name: HOSTILE },
      },
    ]);
  }
}

const table = (page: Page) => page.getByRole('region', { name: 'Table of alerts' });
const rule = (page: Page) => page.getByRole('region', { name: 'The chosen rule' });
const row = (page: Page, name: string) => table(page).getByRole('row', { name: new RegExp(name) });

async function openAlerts(page: Page, server: RealServer, query = ''): Promise<void> {
  await page.goto(`${server.url}/alerts${query}`);
  await expect(row(page, 'TooSlow')).toBeVisible();
}

test('what fires stands before what is pending, with its value, its condition and its strip', async ({
  page,
  server,
}) => {
  await openAlerts(page, server, '?from=-15m');
  await expect(row(page, 'TooSlow')).toContainText('host-1 takes 7 s');
  await expect(row(page, 'TooSlow')).toContainText('> 5, at once');
  await expect(row(page, 'SoonSlow')).toContainText('of 60 min');
  await expect(table(page).getByRole('row', { name: /<img src=x/ })).toHaveCount(1);
  await expect(row(page, 'TooSlow').getByRole('img')).toHaveAccessibleName(/firing/, { timeout: 30_000 });
  const errors = page.getByRole('list', { name: 'Rules that can’t be evaluated' });
  await expect(errors).toContainText('Ambiguous');
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await expect(pages.getByRole('link', { name: /Alerts/ })).toHaveText(/firing/);
  await clean(page);
});

test('the rule has its tests, its runbook and what it would have done', async ({ page, server }) => {
  await openAlerts(page, server);
  await row(page, 'TooSlow').getByRole('button', { name: 'TooSlow' }).click();
  await expect(rule(page)).toContainText('1 test passes');
  await expect(rule(page)).toContainText('slow_seconds > 5');
  // The back-test looks once in a few minutes.
  const fired = async () => {
    const text = (await rule(page).textContent()) ?? '';
    return Number(text.match(/would have fired once, (\d+) min in all/)?.[1]);
  };
  await expect.poll(fired).toBeGreaterThanOrEqual(30);
  expect(await fired()).toBeLessThanOrEqual((Date.now() - slowSince) / MINUTE + 1);
  await expect(rule(page).locator('svg.icon, .backtest svg').last()).toBeVisible();
  const runbook = rule(page).getByRole('link', { name: 'Runbook' });
  expect((await fetch(server.url + (await runbook.getAttribute('href')))).status).toBe(200);
  await page.reload();
  await expect(rule(page)).toContainText('TooSlow');
});

test('a receiver was told, and the page says how that went', async ({ page, server }) => {
  await openAlerts(page, server);
  await expect.poll(() => told.some((text) => text.includes('TooSlow'))).toBe(true);
  const deliveries = page.getByRole('region', { name: 'Table of deliveries' });
  await expect(deliveries.getByRole('row', { name: /TooSlow/ }).first()).toContainText(/webhook ops.*200 in/);
});

test('a silence moves an alert, outlives a reload, and ends', async ({ page, server }) => {
  await openAlerts(page, server);
  await row(page, 'SoonSlow').getByRole('button', { name: 'SoonSlow' }).click();
  await page.keyboard.press('s');
  const window = page.getByRole('dialog');
  await window.getByRole('button', { name: '1 h' }).click();
  await window.getByLabel('Reason').fill(`is looked at ${HOSTILE}`);
  await window.getByRole('button', { name: 'Silence', exact: true }).click();
  await expect(page.getByText('Silenced 1 alert until')).toBeVisible();
  await expect(row(page, 'SoonSlow')).toContainText('is looked at <img');
  await page.goto(`${server.url}/alerts?tab=silenced`);
  await expect(row(page, 'SoonSlow')).toBeVisible();
  await page.getByRole('button', { name: 'End now' }).click();
  await expect(page.getByText('The silence has ended')).toBeVisible();
  await expect(row(page, 'SoonSlow')).toHaveCount(0);
});

test('what begins to fire comes by itself, and what was is in the history', async ({ page, server }) => {
  await openAlerts(page, server);
  await expect(row(page, 'TooSlow')).toHaveCount(1);
  const slow = { labels: { __name__: 'slow_seconds', host: 'host-5', job: 'j5' } };
  await remoteWrite(server.url, [{ ...slow, samples: [{ ms: Date.now(), value: 5.5 }] }]);
  // Two alerts of one rule are one cause.
  const folded = table(page)
    .getByRole('button', { name: /2 alerts, one cause/ })
    .first();
  await expect(folded).toBeVisible({ timeout: 30_000 });
  await folded.click();
  await expect(row(page, 'host-5 takes 5.5 s')).toHaveCount(1);
  await remoteWrite(server.url, [{ ...slow, samples: [{ ms: Date.now(), value: 1 }] }]);
  await page.goto(`${server.url}/alerts?tab=history&f=host:host-5`);
  const firings = page.getByRole('region', { name: 'Table of firings' });
  await expect(firings.getByRole('row', { name: /TooSlow host-5/ })).toBeVisible({ timeout: 30_000 });
  await expect(firings.getByText('still fires')).toHaveCount(0, { timeout: 30_000 });
});

test('the bar of another page asks for counts alone, and hears of what begins to fire', async ({
  page,
  server,
}) => {
  const asked: string[] = [];
  page.on('request', (request) => {
    const { pathname, search } = new URL(request.url());
    if (/(summary|remediation)$/.test(pathname)) asked.push(search);
  });
  await page.goto(`${server.url}/calc`);
  const link = page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: /^Alerts/ });
  // Other rules may begin and end meanwhile: what the server says is what the bar has to show.
  const standing = async () => {
    const answer = await fetch(`${server.url}/api/tg/v1/alerts/summary`);
    const { firing, groups } = (await answer.json()) as { firing: number; groups: object[] };
    const shown = Number(((await link.textContent()) ?? '').match(/\d+/)?.[0] ?? 0);
    return { isThere: JSON.stringify(groups).includes('host-6'), lag: shown - firing };
  };
  const write = (value: number) =>
    remoteWrite(server.url, [
      {
        labels: { __name__: 'slow_seconds', host: 'host-6', job: 'j6' },
        samples: [{ ms: Date.now(), value }],
      },
    ]);
  await expect.poll(standing).toEqual({ isThere: false, lag: 0 });
  await write(5.5);
  // Sooner than it asks by itself.
  await expect.poll(standing, { timeout: 30_000 }).toEqual({ isThere: true, lag: 0 });
  await write(1);
  await expect.poll(standing, { timeout: 30_000 }).toEqual({ isThere: false, lag: 0 });
  expect(asked.filter((query) => query !== '?brief=true')).toEqual([]);
});

test('a text is tried as it is written, and one that misleads is not handed out', async ({
  page,
  server,
}) => {
  await openAlerts(page, server);
  await page.keyboard.press('n');
  const window = page.getByRole('dialog', { name: 'New rule' });
  await window.getByLabel('Name').fill('Slow');
  await window.getByLabel('Expression').fill('slow_seconds > 6');
  await window.getByLabel('For').fill('');
  await expect(window).toContainText('would have fired once');
  await expect(window.getByRole('button', { name: 'Copy as YAML' })).toBeEnabled();
  await window.getByLabel('Expression').fill('tg_gpu_busy_ratio > 0.9');
  await expect(window.getByRole('alert')).toBeVisible();
  await expect(window.getByRole('button', { name: 'Copy as YAML' })).toBeDisabled();
  await window.getByLabel('Expression').fill('slow_seconds > ');
  await expect(window.getByRole('alert')).toContainText('400');
});

test('a rule is saved, edited, deleted and taken back', async ({ page, server }) => {
  await openAlerts(page, server);
  const inForce = async () => {
    const { data } = await (await page.request.get(`${server.url}/api/v1/rules`)).json();
    const rules = data.groups.flatMap((g: { file: string; rules: { name: string; query: string }[] }) =>
      g.rules.filter((r) => r.name === 'Saved').map((r) => `${g.file} ${r.query}`),
    );
    return rules.join();
  };
  await page.keyboard.press('n');
  const fresh = page.getByRole('dialog', { name: 'New rule' });
  // A name that another file has is refused, with a way out.
  await fresh.getByLabel('Name').fill('TooSlow');
  await fresh.getByLabel('Expression').fill('slow_seconds > 100');
  await fresh.getByRole('button', { name: 'Save' }).click();
  await expect(fresh.getByRole('alert')).toContainText('rules.yml');
  await fresh.getByLabel('Name').fill('Saved');
  await fresh.getByRole('button', { name: 'Save' }).click();
  await expect(fresh).toBeHidden();
  await expect.poll(inForce).toBe('saved/Saved.yml slow_seconds > 100');

  await page.goto(`${server.url}/alerts?rule=Saved`);
  const panel = page.getByRole('region', { name: 'The chosen rule' });
  await panel.getByRole('button', { name: 'Edit' }).click();
  const window = page.getByRole('dialog', { name: 'Edit Saved' });
  await window.getByLabel('Expression').fill('slow_seconds > 200');
  await window.getByRole('button', { name: 'Save' }).click();
  await expect.poll(inForce).toBe('saved/Saved.yml slow_seconds > 200');
  await expect(panel).toContainText('slow_seconds > 200');
  await clean(page);

  await panel.getByRole('button', { name: 'Edit' }).click();
  await window.getByRole('button', { name: 'Delete' }).click();
  await expect.poll(inForce).toBe('');
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect.poll(inForce).toBe('saved/Saved.yml slow_seconds > 200');
});

test('an act waits, is rehearsed, and runs for real once its host is named', async ({ page, server }) => {
  await page.goto(`${server.url}/remediation`);
  const queue = page.getByRole('region', { name: 'Approvals' });
  await expect(queue).toContainText('host-3', { timeout: 30_000 });
  await expect(page.getByRole('navigation', { name: 'Pages' })).toContainText('1 waiting');
  await clean(page);
  await queue.getByRole('button', { name: 'Decide…' }).click();
  const window = page.getByRole('dialog');
  await expect(window.getByRole('list', { name: 'Commands' })).toHaveText(/^1exec note host-3 1limit 10/);
  await clean(page);
  await window.getByRole('button', { name: 'Run as dry run' }).click();
  await expect(window.getByRole('status')).toContainText('rehearsed');
  expect(existsSync(join(folder, 'ran'))).toBe(false);
  await window.getByLabel(/^Type host-3/).fill('host-3');
  await window.getByRole('button', { name: 'Run for real' }).click();
  await expect(window).toHaveCount(0);
  await expect.poll(() => existsSync(join(folder, 'ran'))).toBe(true);
  expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('host-3 1\n');
  const audit = page.getByRole('region', { name: 'Audit', exact: true });
  await expect(audit.getByRole('row', { name: /approved by/ })).toContainText('real');
  await expect(audit.getByRole('row', { name: /would run 1 command/ })).toContainText('dry');
  await expect(page.getByRole('list', { name: 'States of host-3' })).toBeVisible();
  await clean(page);
});

test('the policy is replayed on what was stored, and the alerts have it beside them', async ({
  page,
  server,
}) => {
  await page.goto(`${server.url}/remediation`);
  await page.getByRole('button', { name: '1 day' }).click();
  await expect(page.getByRole('region', { name: 'Replay' }).getByRole('status')).toContainText(
    'web revision 3',
  );
  await openAlerts(page, server);
  await page.keyboard.press('b');
  await expect(page).toHaveURL(/side=remediation/);
  await expect(page.getByRole('complementary', { name: 'Remediation' })).toContainText('policy web, rev 3');
  await clean(page);
});

test('what a verdict leads to is proposed with a reason, and waits for a decision', async ({
  page,
  server,
}) => {
  await train(server, 'held-up', 5, (rank) => `host-${8 + (rank >> 3)}`);
  const health = async () => {
    const answer = await fetch(`${server.url}/api/tg/v1/runs/${await runId(server, 'held-up')}/health`);
    const { verdicts } = (await answer.json()) as { verdicts: { id: string; host: string | null }[] };
    return verdicts.find((v) => v.host === 'host-8')?.id ?? '';
  };
  await expect.poll(health).not.toBe('');
  const open = (verdict: string) => page.goto(`${server.url}/remediation?host=host-8&verdict=${verdict}`);
  const asked = page.getByRole('region', { name: 'What was asked for' });
  const propose = async () => {
    await asked.getByLabel('Why it is proposed').fill('it holds fifteen others up');
    await asked.getByRole('button', { name: 'Propose it' }).click();
  };
  await open('v-gone');
  await expect(asked).toContainText('has proposed nothing for it');
  await propose();
  await expect(asked.getByRole('alert')).toContainText('there is no verdict `v-gone` on host-8');
  await open(await health());
  await clean(page);
  await propose();
  const window = page.getByRole('dialog', { name: /host-8/ });
  await expect(window.getByRole('list', { name: 'Commands' })).toContainText('note host-8');
  await page.keyboard.press('Escape');
  await expect(asked).toContainText('Waits for a decision');
  await expect(page.getByRole('region', { name: 'Approvals' })).toContainText('host-8');
  await clean(page);
  await asked.getByRole('button', { name: 'Done' }).click();
  await expect(asked).toHaveCount(0);
});
