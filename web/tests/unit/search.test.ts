/** What the search of the bar finds, and in which order. */
import { afterEach, expect, test, vi } from 'vitest';
import { find, fitOf, type Hit, PLAIN, ranked, wordsOf } from '../../src/search/find';

const HOSTILE = '<img src=x onerror=alert(1)>.*("';

afterEach(() => vi.unstubAllGlobals());

const hit = (kind: Hit['kind'], text: string, note = ''): Hit => ({ kind, text, note, href: `/${text}` });
const names = (groups: ReturnType<typeof ranked>) =>
  groups.map((group) => [group.kind, group.hits.map((h) => h.text)]);

/** A server that knows these; the paths that it was asked. */
function serve(answers: Record<string, unknown>): string[] {
  const asked: string[] = [];
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(path);
    const [, answer] = Object.entries(answers).find(([part]) => path.includes(part)) ?? ['', null];
    if (typeof answer === 'number') return new Response('{}', { status: answer });
    return Response.json(answer);
  });
  return asked;
}

const NOTHING = {
  'api/tg/v1/runs?': { runs: [], total: 0, matching: 0 },
  'label/model': { data: [] },
  'label/host': { data: [] },
  'v1/series': { data: [] },
  'v1/rules': { data: { groups: [] } },
};

test('a name itself comes before one that begins with it, and that before one that has it', () => {
  const [loss] = [wordsOf(' Loss ')];
  expect(['loss', 'LossNotFinite', 'run-loss', 'glossary', 'gain'].map((t) => fitOf(t, loss))).toEqual([
    0,
    1,
    2,
    3,
    null,
  ]);
  expect(fitOf('host-3 GPU 1', wordsOf('gpu host-3'))).toBe(2);
  expect(fitOf(`x${HOSTILE}`, wordsOf(HOSTILE))).not.toBeNull();
  expect(fitOf('x', wordsOf(HOSTILE))).toBeNull();
});

test('the kind with the best hit leads, each shows five, and says when there are more', () => {
  const runs = Array.from({ length: 7 }, (_, n) => hit('run', `pretrain-alerts-${n}`));
  const groups = ranked([...runs, hit('rule', 'AlertsLate'), hit('page', 'Alerts')], ['alerts']);
  expect(groups.map((g) => [g.kind, g.hits.length, g.more])).toEqual([
    ['page', 1, false],
    ['rule', 1, false],
    ['run', 5, true],
  ]);
});

test('all are asked at once, and the answers lead to where these things are', async () => {
  const asked = serve({
    'api/tg/v1/runs?': {
      runs: [
        {
          run_id: 'f'.repeat(16),
          organization: 'a',
          workspace: '',
          project: 'p',
          run: 'on-host-3',
          state: 'running',
        },
      ],
    },
    'label/model': { data: ['', 'host-3/chat'] },
    'label/host': { data: ['host-3', 'host-31'] },
    'v1/series': {
      data: [
        { host: 'host-3', gpu: '1', uuid: 'GPU-1', gpu_model: 'H100' },
        { host: 'host-3', gpu: '1', uuid: 'GPU-1', gpu_model: 'H100', driver: '2' },
        { host: 'host-31', gpu: '0', uuid: 'GPU-2' },
      ],
    },
    'v1/rules': {
      data: { groups: [{ file: '/r/gpu.yml', rules: [{ name: 'Host-3Down', type: 'alerting' }] }] },
    },
  });
  const { groups, failed } = await find('host-3', new AbortController().signal);
  expect(failed).toEqual([]);
  expect(names(groups)).toEqual([
    ['host', ['host-3', 'host-31']],
    ['model', ['host-3/chat']],
    ['GPU', ['host-3 GPU 1', 'host-31 GPU 0']],
    ['rule', ['Host-3Down']],
    ['run', ['on-host-3']],
  ]);
  expect(Object.fromEntries(groups.map((g) => [g.kind, g.hits[0].href]))).toEqual({
    host: '/fleet?f=host%3Ahost-3',
    model: '/inference/host-3%2Fchat',
    GPU: '/fleet/host-3/1?uuid=GPU-1',
    rule: '/alerts?tab=rules&rule=Host-3Down',
    run: `/o/a/-/p/r/${'f'.repeat(16)}/charts`,
  });
  expect(asked).toHaveLength(5);
  const series = new URL(asked.find((path) => path.includes('v1/series'))!, 'http://x').searchParams;
  expect(series.getAll('match[]')[0]).toBe('tg_gpu_info{host=~"(?i).*host-3.*"}');
});

test('"host-3 gpu 1" is one card, and what was typed is never an expression', async () => {
  const asked = serve({
    ...NOTHING,
    'v1/series': {
      data: [
        { host: 'host-3', gpu: '1' },
        { host: 'host-3', gpu: '2' },
      ],
    },
  });
  const { groups } = await find('host-3 gpu 1', new AbortController().signal);
  expect(names(groups)).toEqual([['GPU', ['host-3 GPU 1']]]);
  await find(HOSTILE, new AbortController().signal);
  const match = new URL(asked.findLast((path) => path.includes('label/host'))!, 'http://x').searchParams.get(
    'match[]',
  );
  expect(match).toBe(
    '{__name__=~"tg_node_gpus|tg_gpu_info",host=~"(?i).*onerror=alert\\\\(1\\\\)>\\\\.\\\\*\\\\(\\".*"}',
  );
});

test('what fails is told and what is refused is not there; the rest is found', async () => {
  serve({ ...NOTHING, 'label/host': 403, 'label/model': 500, 'api/tg/v1/runs?': 503 });
  const { groups, failed } = await find('fleet', new AbortController().signal);
  expect([names(groups), failed.toSorted()]).toEqual([[['page', ['Fleet']]], ['models', 'runs']]);
});

test('before anything is typed there are the pages, and nothing is asked', async () => {
  const asked = serve({});
  expect(await find('  ', new AbortController().signal)).toBe(PLAIN);
  expect([asked, PLAIN.groups[0].hits.map((h) => h.text)]).toEqual([
    [],
    ['Runs', 'Fleet', 'Inference', 'Alerts', 'Remediation', 'Explore', 'Calculators'],
  ]);
});
