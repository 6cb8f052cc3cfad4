/** The page of one card: which card it is, and what was read of it. */
import { batch, computed, signal } from '@preact/signals';
import { askProm, readValue } from '../explore/answer';
import { param } from '../lib/address';
import { isAbort, tokenEntered } from '../lib/api';
import {
  askEvents,
  askGpus,
  askIncidents,
  type FleetEvent,
  type Gpu,
  type GpusAnswer,
  type IncidentsAnswer,
} from './answers';
import { selectorOf } from './lanes';
import { gpuKey } from './names';
import { FleetRange } from './range';

/** Events that the axis shows at most. */
const EVENTS_MAX = 500;
/** What the driver counts, and what it says of rows and repairs. */
const COUNTERS =
  'tg_gpu_(.+_total|row_remap_.+|retired_pages|recovery_action|nvlink_active_links|pcie_link_.+|healthy)';

/** One counted number. */
export interface Counter {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Everything on the page hangs on this. */
export class Card {
  readonly range = new FleetRange();
  /** The card that the address names: by its own number where it has one, else by its place now. */
  readonly uuid = computed(() => param('uuid'));
  readonly answer = signal<GpusAnswer | null>(null);
  readonly gpu = signal<Gpu | null>(null);
  readonly incidents = signal<IncidentsAnswer | null>(null);
  readonly events = signal<FleetEvent[]>([]);
  readonly counters = signal<Counter[]>([]);
  /** Cards that it may be held against; `null` until they are read. */
  readonly peers = signal<Gpu[] | null>(null);
  readonly error = signal<unknown>(null);
  readonly sideError = signal<unknown>(null);
  readonly cursor = signal<number | null>(null);

  readonly question = computed(() =>
    JSON.stringify([this.uuid.value, this.range.span.value, this.range.live.value, tokenEntered.value]),
  );

  private controller = new AbortController();

  constructor(
    readonly host: string,
    readonly index: string,
  ) {}

  /** Reads the card, then what hangs on who it is. */
  async load(): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal: stop } = this.controller;
    this.range.moveOn();
    const { from, to } = this.range.range.peek();
    const span = { from: Math.round(from), to: Math.round(to) };
    const uuid = this.uuid.peek();
    try {
      const query = { signal: 'power_ratio', bins: 36, ...span };
      const answer = await askGpus({ ...query, ...(uuid ? { uuid } : { host: this.host }) }, stop);
      const found = answer.gpus.find((g) => (uuid ? g.uuid === uuid : g.gpu === this.index)) ?? null;
      // Asked by its place, a card is told with its history only once its own number is known.
      const whole = found && !uuid && found.uuid ? await this.whole(found, { ...query }, stop) : found;
      batch(() => {
        this.answer.value = answer;
        this.gpu.value = whole;
        this.error.value = null;
      });
      if (whole) await this.around(whole, span, stop);
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    }
  }

  private async whole(found: Gpu, query: Record<string, string | number>, stop: AbortSignal): Promise<Gpu> {
    const answer = await askGpus({ ...query, uuid: found.uuid }, stop);
    return answer.gpus.find((g) => gpuKey(g) === gpuKey(found)) ?? found;
  }

  private async around(gpu: Gpu, span: { from: number; to: number }, stop: AbortSignal): Promise<void> {
    const who = gpu.uuid ? { uuid: gpu.uuid } : { host: gpu.host };
    const peers = gpu.owner?.run_id ? { run_id: gpu.owner.run_id } : { host: gpu.host };
    const results = await Promise.allSettled([
      askIncidents({ state: 'all', ...who, ...span }, stop).then((a) => {
        this.incidents.value = a;
      }),
      askEvents({ ...who, ...span, limit: EVENTS_MAX }, stop).then((a) => {
        this.events.value = a.events;
      }),
      askCounters(gpu, stop).then((a) => {
        this.counters.value = a;
      }),
      askGpus({ signal: 'power_ratio', bins: 36, ...peers, ...span }, stop).then(
        (a) => {
          this.peers.value = a.gpus;
        },
        (error: unknown) => {
          // The card's own history does not wait for what cannot be read.
          if (!isAbort(error)) this.peers.value ??= [];
          throw error;
        },
      ),
    ]);
    const failed = results.find((r) => r.status === 'rejected' && !isAbort(r.reason));
    this.sideError.value = failed ? (failed as PromiseRejectedResult).reason : null;
  }

  end(): void {
    this.controller.abort();
  }
}

interface Vector {
  result: { metric: Record<string, string>; value: [number, string] }[];
}

async function askCounters(gpu: Gpu, signal: AbortSignal): Promise<Counter[]> {
  const query = `{__name__=~"${COUNTERS}",${selectorOf(gpu)}}`;
  const body = await askProm<Vector>('query', { query }, signal);
  return body.data.result.map(({ metric, value }) => {
    const { __name__: name, host: _host, gpu: _gpu, uuid: _uuid, ...labels } = metric;
    return { name, labels, value: readValue(value[1]) };
  });
}
