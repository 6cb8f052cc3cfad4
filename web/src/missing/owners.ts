/** Who reports what, put together from the reports of all processes. */
import type { CaptureDevice, CaptureOwner, CaptureReport } from '../lib/missing';
import { formatCount, formatValue } from '../lib/number';

/** Who reports a card or a node, or why nobody does. */
export interface Owned {
  /** The driver's index; `null` for the node itself. */
  gpu: number | null;
  model: string;
  uuid: string;
  owner: CaptureOwner | null;
  /** Where it has no owner: in words. */
  why: string;
}

/** A host. */
export interface HostOwners {
  host: string;
  owned: Owned[];
  /** Cards that the driver counts, and those that some process may use. */
  cards: number;
  visible: number;
}

const natural = new Intl.Collator('en', { numeric: true });

/** What a device without an owner is. */
const WITHOUT: Record<CaptureDevice['role'], string> = {
  owned: '',
  other: '',
  reported_elsewhere: '',
  waiting: 'nobody yet: slower ranks may still come',
  not_visible: 'not given to this job',
  mig: 'partitioned with MIG',
  unreadable: 'unreadable',
};

const self = ({ host, pid, rank }: CaptureReport): CaptureOwner => ({ host, pid, rank });

/** The reports by host, each in their order. */
function byHost(capture: CaptureReport[]): [host: string, reports: CaptureReport[]][] {
  const hosts = new Map<string, CaptureReport[]>();
  for (const report of capture) hosts.set(report.host, [...(hosts.get(report.host) ?? []), report]);
  return [...hosts].sort((a, b) => natural.compare(a[0], b[0]));
}

/** Hosts with their cards and who reports each. */
export function ownersOf(capture: CaptureReport[]): HostOwners[] {
  return byHost(capture).map(([host, reports]) => {
    const cards = new Map<number, { report: CaptureReport; device: CaptureDevice }[]>();
    for (const report of reports)
      for (const device of report.devices)
        cards.set(device.gpu, [...(cards.get(device.gpu) ?? []), { report, device }]);
    const sorted = [...cards].sort((a, b) => a[0] - b[0]);
    return {
      host,
      owned: [nodeOf(reports), ...sorted.map(([gpu, seen]) => cardOf(gpu, seen))],
      cards: cards.size,
      visible: sorted.filter(([, seen]) => seen.some((s) => s.device.role !== 'not_visible')).length,
    };
  });
}

function nodeOf(reports: CaptureReport[]): Owned {
  const node = { gpu: null, model: '', uuid: '' };
  const own = reports.find((r) => r.node === 'reports' && r.state === 'sampling');
  if (own) return { ...node, owner: self(own), why: '' };
  const told = reports.flatMap((r) => (r.node !== null && r.node !== 'reports' ? [r.node] : []))[0];
  return { ...node, owner: told ?? null, why: told ? '' : 'nobody, as far as is known' };
}

function cardOf(gpu: number, seen: { report: CaptureReport; device: CaptureDevice }[]): Owned {
  const { model, uuid } = seen.map((s) => s.device).find((d) => d.uuid) ?? seen[0].device;
  const card = { gpu, model, uuid };
  // Who owns it knows best, then who was told of its owner, then who sees it.
  const own = seen.find((s) => s.device.role === 'owned');
  if (own) return { ...card, owner: self(own.report), why: '' };
  const told = seen.find((s) => s.device.owner);
  if (told) return { ...card, owner: told.device.owner, why: '' };
  const { role, cause } = (seen.find((s) => s.device.role !== 'not_visible') ?? seen[0]).device;
  return { ...card, owner: null, why: cause ? `${WITHOUT[role]}: ${cause}` : WITHOUT[role] };
}

/** A process in words. */
export function ownerText({ rank, pid }: CaptureOwner): string {
  return rank === null ? `process ${pid}` : `rank ${rank}`;
}

const MODES: Record<CaptureReport['arbitration'], string> = {
  shm: 'kernel locks under /dev/shm',
  tmp: 'kernel locks in the folder for temporary files',
  unavailable: 'no folder for locks: the local rank decides',
  none: 'nothing to agree on',
};

/** Different words of several reports, the most frequent first, with how many of them say so where they differ. */
function agreed(words: string[]): string {
  const counts = new Map<string, number>();
  for (const word of words) if (word) counts.set(word, (counts.get(word) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || natural.compare(a[0], b[0]));
  if (sorted.length === 1) return sorted[0][0];
  const shown = sorted.slice(0, 3).map(([word, count]) => `${word} (${formatCount(count)})`);
  return [...shown, ...(sorted.length > 3 ? [`${sorted.length - 3} more`] : [])].join('; ');
}

function stateText({ state, cause, failed_ticks }: CaptureReport): string {
  if (state === 'sampling') return 'sampling';
  if (state === 'off') return 'switched off';
  if (state === 'not_linux') return 'not captured on this platform';
  if (state === 'ended') return `ended after ${formatCount(failed_ticks)} failed samples: ${cause}`;
  return `did not start: ${cause}`;
}

const driverText = ({ driver }: CaptureReport) =>
  driver === null ? '' : 'version' in driver ? driver.version || 'loaded, version unknown' : driver.text;

const memoryText = ({ limits }: CaptureReport) =>
  limits === null || !limits.memory_measured_at
    ? ''
    : `${limits.memory_measured_at}${limits.memory_ceiling_bytes === null ? '' : `, of ${formatValue(limits.memory_ceiling_bytes, 'B')}`}`;

const cpuText = ({ limits }: CaptureReport) =>
  limits === null || !limits.cpu_measured_at
    ? ''
    : `${limits.cpu_measured_at}${limits.cpu_capacity_cpus === null ? '' : `, of ${formatValue(limits.cpu_capacity_cpus)} CPUs`}`;

/** Each process has a rank of its own: that they go by the same variable is what they agree on. */
const withoutRank = (ownership: string) => ownership.replace(/^(\w+)=\d+$/, '$1');

/** What all processes agree on, or not: name and words; what nobody tells is left out. */
export function captureFacts(capture: CaptureReport[], hosts: HostOwners[]): [name: string, words: string][] {
  const sum = (of: (h: HostOwners) => number) => hosts.reduce((all, h) => all + of(h), 0);
  const cards = sum((h) => h.cards);
  const facts: [string, string][] = [
    ['Processes', agreed(capture.map(stateText))],
    [
      'Every',
      agreed(capture.map((r) => (r.interval_seconds > 0 ? formatValue(r.interval_seconds, 's') : ''))),
    ],
    ['Arbitration', agreed(capture.map((r) => `${r.arbitration}, ${MODES[r.arbitration] ?? ''}`))],
    ['GPU driver', agreed(capture.map(driverText))],
    ['GPUs', cards > 0 ? `${formatCount(sum((h) => h.visible))} visible of ${formatCount(cards)}` : ''],
    ['CUDA order', cards > 0 ? agreed(capture.map((r) => r.cuda_device_order)) : ''],
    ['Own cards', cards > 0 ? agreed(capture.map((r) => withoutRank(r.ownership))) : ''],
    ['Cgroups', agreed(capture.map((r) => r.limits?.cgroup_mode ?? ''))],
    ['Memory at', agreed(capture.map(memoryText))],
    ['CPU at', agreed(capture.map(cpuText))],
  ];
  return facts.filter(([, words]) => words !== '');
}
