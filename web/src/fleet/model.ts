/** The Fleet page: what is chosen, what was read, and what follows from both. */
import { batch, computed, signal } from '@preact/signals';
import { param, setParams } from '../lib/address';
import { isAbort, tokenEntered } from '../lib/api';
import { now } from '../lib/clock';
import {
  askGpus,
  askIncidents,
  askNodes,
  type Gpu,
  type GpusAnswer,
  type IncidentsAnswer,
  type NodesAnswer,
} from './answers';
import { keeper } from './filter';
import { type Group, layoutOf } from './layout';
import { gpuKey } from './names';
import { binned, FleetRange } from './range';
import { signalOf } from './signals';

/** Bins of a strip. */
export const BINS = 36;

/** Everything on the page hangs on this. */
export class Fleet {
  readonly range = new FleetRange();
  readonly colour = computed(() => signalOf(param('colour')));
  readonly group = computed<Group>(() => (param('group') === 'job' ? 'job' : 'host'));
  readonly agg = computed(() => (param('agg') === 'worst' ? 'worst' : 'median'));
  readonly filter = computed(() => param('f'));
  /** Whether cleared incidents are listed, too. */
  readonly all = computed(() => param('incidents') === 'all');
  readonly cell = computed(() => param('cell'));

  readonly gpus = signal<GpusAnswer | null>(null);
  readonly nodes = signal<NodesAnswer | null>(null);
  readonly incidents = signal<IncidentsAnswer | null>(null);
  readonly gpusError = signal<unknown>(null);
  readonly nodesError = signal<unknown>(null);
  readonly incidentsError = signal<unknown>(null);
  /** Rows that are opened. */
  readonly open = signal<ReadonlySet<string>>(new Set());
  /** The bin under the pointer; -1 for none. */
  readonly bin = signal(-1);
  /** Whether the row under the pointer is one strip. */
  readonly wide = signal(false);

  /** What was read, which may not be what is chosen now. */
  readonly drawn = computed(() => signalOf(this.gpus.value?.signal ?? ''));
  readonly info = computed(
    () => this.gpus.value?.signals.find((s) => s.key === this.drawn.value.key) ?? null,
  );
  readonly kept = computed(() => (this.gpus.value?.gpus ?? []).filter(keeper(this.filter.value)));
  readonly layout = computed(() => {
    // A filter speaks of cards: nodes without any are in its way.
    const nodes = this.filter.value === '' ? (this.nodes.value?.nodes ?? []) : this.keptNodes.value;
    return layoutOf(this.kept.value, nodes, { group: this.group.value, open: this.open.value });
  });
  readonly selected = computed<Gpu | null>(() => {
    const wanted = this.cell.value;
    if (wanted === '') return null;
    const all = this.gpus.value?.gpus ?? [];
    return all.find((g) => gpuKey(g) === wanted || `${g.host}/${g.gpu}` === wanted) ?? null;
  });
  /** Seconds since the newest sample of any card. */
  readonly age = computed(() => {
    let newest = 0;
    for (const gpu of this.gpus.value?.gpus ?? []) newest = Math.max(newest, gpu.last_seen ?? 0);
    return newest === 0 ? null : Math.max(0, (now.value - newest) / 1000);
  });
  private readonly keptNodes = computed(() => {
    const hosts = new Set(this.kept.value.map((g) => g.host));
    return (this.nodes.value?.nodes ?? []).filter((n) => hosts.has(n.host));
  });

  private controller = new AbortController();

  /** What is asked for; reading it follows every part of it. */
  readonly question = computed(() =>
    JSON.stringify([
      this.colour.value.key,
      this.agg.value,
      this.range.span.value,
      this.range.live.value,
      this.all.value,
      tokenEntered.value,
    ]),
  );

  /** Asks everything anew; the old picture stays until the new one is there. */
  async load(): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    this.range.moveOn();
    const { signal: stop } = this.controller;
    const { from, to } = binned(this.range.range.peek(), BINS);
    const gpus = { signal: this.colour.peek().key, agg: this.agg.peek(), from, to, bins: BINS };
    const span = this.range.range.peek();
    const incidents = this.all.peek()
      ? { state: 'all', from: Math.round(span.from), to: Math.round(span.to) }
      : { state: 'open' };
    const take = <T>(answer: Promise<T>, into: { value: T | null }, error: { value: unknown }) =>
      answer.then(
        (value) =>
          batch(() => {
            into.value = value;
            error.value = null;
          }),
        (reason: unknown) => {
          if (!isAbort(reason)) error.value = reason;
        },
      );
    await Promise.all([
      take(askGpus(gpus, stop), this.gpus, this.gpusError),
      take(askNodes(stop), this.nodes, this.nodesError),
      take(askIncidents(incidents, stop), this.incidents, this.incidentsError),
    ]);
  }

  select(gpu: Gpu | null): void {
    setParams({ cell: gpu && gpuKey(gpu) });
  }

  /** Opens a row that is one strip, or folds it again. */
  toggle(row: string): void {
    const next = new Set(this.open.peek());
    if (!next.delete(row)) next.add(row);
    this.open.value = next;
  }

  end(): void {
    this.controller.abort();
  }
}
