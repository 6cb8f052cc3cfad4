/** Which cards a run has: from its series, and from what its processes report of their drivers. */
import type { MetricRow } from '../lib/answers';
import type { CaptureDevice, CaptureOwner, CaptureReport } from '../lib/missing';

/** A GPU of a host. */
export interface Card {
  /** `host/gpu`, both as in the address. */
  key: string;
  host: string;
  gpu: string;
  /** Whether the run has series of it. */
  drawn: boolean;
  /** What the drivers say of it, from its owner where there is one. */
  device: CaptureDevice | null;
  /** The process that reports it. */
  owner: CaptureOwner | null;
}

/** The key of a card, as the address spells it. */
export const cardKey = (host: string, gpu: string) =>
  `${encodeURIComponent(host)}/${encodeURIComponent(gpu)}`;

const natural = new Intl.Collator('en', { numeric: true });

function ownerOf(report: CaptureReport, device: CaptureDevice): CaptureOwner | null {
  if (device.role === 'owned') return { host: report.host, pid: report.pid, rank: report.rank };
  return device.owner;
}

/** Whose view of a device says most: its owner's, then that of who knows the owner, then any. */
const weight = (device: CaptureDevice) => (device.role === 'owned' ? 2 : device.owner ? 1 : 0);

/** All cards by host and number: those with series, those in reports, and those that agents have `found`. */
export function cardsOf(
  metrics: MetricRow[],
  reports: CaptureReport[],
  found: Record<string, string>[] = [],
): Card[] {
  const cards = new Map<string, Card>();
  const at = (host: string, gpu: string) => {
    const key = cardKey(host, gpu);
    const card = cards.get(key) ?? { key, host, gpu, drawn: false, device: null, owner: null };
    cards.set(key, card);
    return card;
  };
  for (const { display, labels } of metrics)
    if (display.startsWith('system/gpu/') && labels.host !== undefined && labels.gpu !== undefined)
      at(labels.host, labels.gpu).drawn = true;
  for (const { host, gpu } of found) if (host !== undefined && gpu !== undefined) at(host, gpu);
  for (const report of reports) {
    for (const device of report.devices) {
      const card = at(report.host, String(device.gpu));
      if (card.device && weight(card.device) >= weight(device)) continue;
      card.device = device;
      card.owner = ownerOf(report, device) ?? card.owner;
    }
  }
  return [...cards.values()].sort((a, b) => natural.compare(a.host, b.host) || natural.compare(a.gpu, b.gpu));
}

/** Cards of the run itself: with series, or owned by one of its processes. */
export const owned = (cards: Card[]) => cards.filter((c) => c.drawn || c.device?.role === 'owned');

/** Cards as rows of hosts and columns of numbers. */
export function gridOf(cards: Card[]): { hosts: string[]; gpus: string[]; at: Map<string, Card> } {
  const unique = (values: string[]) => [...new Set(values)].sort(natural.compare);
  return {
    hosts: unique(cards.map((c) => c.host)),
    gpus: unique(cards.map((c) => c.gpu)),
    at: new Map(cards.map((c) => [c.key, c])),
  };
}

/** What a card is called. */
export const cardName = (card: { host: string; gpu: string }) => `${card.host} · GPU ${card.gpu}`;
