import { expect, test } from 'vitest';
import type { CaptureDevice, CaptureReport } from '../../src/lib/missing';
import { captureFacts, ownersOf, ownerText } from '../../src/missing/owners';

const device = (
  gpu: number,
  role: CaptureDevice['role'],
  more: Partial<CaptureDevice> = {},
): CaptureDevice => ({
  gpu,
  uuid: `GPU-${gpu}`,
  model: 'H100',
  pci_bus_id: '',
  compute_capability: '9.0',
  memory_account: '',
  role,
  owner: null,
  cause: '',
  unsupported: [],
  ...more,
});

const report = (host: string, rank: number | null, more: Partial<CaptureReport> = {}): CaptureReport => ({
  host,
  boot_id: 'b',
  pid: 100 + (rank ?? 0),
  rank,
  local_rank: rank,
  state: 'sampling',
  failed_ticks: 0,
  cause: '',
  interval_seconds: 10,
  arbitration: 'shm',
  node: null,
  driver: { version: '570.1' },
  cuda_device_order: 'FASTEST_FIRST',
  ownership: 'local rank',
  devices: [],
  limits: null,
  failures: [],
  ...more,
});

test('a card belongs to who reports it, whatever others say', () => {
  const owner = { host: 'a', pid: 7, rank: 9 };
  const hosts = ownersOf([
    report('b', 2),
    report('a', 1, {
      devices: [device(0, 'other', { owner }), device(1, 'owned'), device(2, 'not_visible')],
    }),
    report('a', 0, {
      node: 'reports',
      devices: [device(0, 'owned'), device(1, 'waiting'), device(2, 'not_visible')],
    }),
  ]);
  expect(hosts.map((h) => [h.host, h.cards, h.visible])).toEqual([
    ['a', 3, 2],
    ['b', 0, 0],
  ]);
  expect(hosts[0].owned.map((o) => (o.owner ? ownerText(o.owner) : o.why))).toEqual([
    'rank 0',
    'rank 0',
    'rank 1',
    'not given to this job',
  ]);
  expect(hosts[1].owned[0]).toMatchObject({ gpu: null, owner: null, why: 'nobody, as far as is known' });
});

test('without a report of the owner, what another was told of it counts; else why there is none', () => {
  const owner = { host: 'a', pid: 7, rank: null };
  const [{ owned }] = ownersOf([
    report('a', 1, {
      node: owner,
      devices: [
        device(0, 'other', { owner }),
        device(1, 'mig'),
        device(2, 'unreadable', { cause: 'handle: 15', uuid: '', model: '' }),
        device(3, 'waiting'),
        device(4, 'reported_elsewhere', { owner: { ...owner, host: 'pod-2' } }),
      ],
    }),
  ]);
  expect(owned.map((o) => (o.owner ? ownerText(o.owner) : o.why))).toEqual([
    'process 7',
    'process 7',
    'partitioned with MIG',
    'unreadable: handle: 15',
    'nobody yet: slower ranks may still come',
    'process 7',
  ]);
  expect(owned[5].owner?.host).toBe('pod-2');
});

test('facts are told once where all agree, and with their number where not', () => {
  const limits = {
    cgroup_mode: 'v2',
    memory_measured_at: '/sys/fs/cgroup/job',
    memory_ceiling_bytes: 17_179_869_184,
    cpu_measured_at: '/sys/fs/cgroup/job/cpu.stat',
    cpu_capacity_cpus: 2,
  };
  const capture = [
    report('a', 0, { node: 'reports', limits, devices: [device(0, 'owned')] }),
    report('a', 1, { driver: { absent: 'no_library', text: 'no driver library', hint: '' } }),
    report('a', 2, { state: 'ended', failed_ticks: 5, cause: 'disk' }),
  ];
  const facts = new Map(captureFacts(capture, ownersOf(capture)));
  expect(facts.get('Every')).toBe('10\u2009s');
  expect(facts.get('Processes')).toBe('sampling (2); ended after 5 failed samples: disk (1)');
  expect(facts.get('Arbitration')).toBe('shm, kernel locks under /dev/shm');
  expect(facts.get('GPU driver')).toBe('570.1 (2); no driver library (1)');
  expect(facts.get('GPUs')).toBe('1 visible of 1');
  expect(facts.get('Memory at')).toBe('/sys/fs/cgroup/job, of 16.00\u2009GiB');
  expect(facts.get('CPU at')).toBe('/sys/fs/cgroup/job/cpu.stat, of 2 CPUs');
  const ranks = [0, 1].map((r) =>
    report('a', r, { ownership: `LOCAL_RANK=${r}`, devices: [device(r, 'owned')] }),
  );
  expect(new Map(captureFacts(ranks, ownersOf(ranks))).get('Own cards')).toBe('LOCAL_RANK');
  const bare = new Map(captureFacts([report('a', 0, { driver: null })], []));
  expect([bare.has('GPU driver'), bare.has('GPUs'), bare.has('CUDA order'), bare.has('Memory at')]).toEqual([
    false,
    false,
    false,
    false,
  ]);
});
