/** The Ranks tab: what is chosen, what was read, and what follows from both. */
import { batch, computed, type ReadonlySignal, signal } from '@preact/signals';
import type { Board } from '../charts/board';
import * as view from '../charts/view';
import { param, setParams } from '../lib/address';
import { isAbort } from '../lib/api';
import { type Axis, askPoints } from '../lib/points';
import { type Scale, scaleOf } from '../lib/ramp';
import { choicesOf, chosen } from './choices';
import { crewOf } from './crew';
import { columnAt, columnX } from './grid';
import { type Base, farthest, lastWhole, ratiosOf, standings } from './ratio';
import { type Reading, read } from './read';
import { type Order, rowsOf } from './rows';

/** Columns that the map has at most, and least. */
const COLUMNS_MAX = 600;
const COLUMNS_MIN = 40;
/** CSS pixels of a column. */
const CELL_PX = 2;
/** Ranks that are named. */
export const NAMED = 5;

const ORDERS: Order[] = ['rank', 'value', 'host'];

/** A reading and what it answers. */
export interface Loaded extends Reading {
  axis: Axis;
  choice: string;
}

/** Everything on the page hangs on this. */
export class Ranks {
  readonly crew = computed(() =>
    crewOf(this.board.detail.value, this.board.missing.value?.capture ?? [], this.board.metrics.value ?? []),
  );
  readonly choices = computed(() => choicesOf(this.board.charts.value, this.crew.value));
  readonly choice = computed(() => chosen(this.choices.value, param('series')));
  readonly base = computed<Base>(() => (param('base') === 'own' ? 'own' : 'peers'));
  readonly order = computed<Order>(() => ORDERS.find((o) => o === param('order')) ?? 'rank');
  /** The rank that is selected; `null` for none. */
  readonly rank = computed(() => (/^\d{1,7}$/.test(param('rank')) ? Number(param('rank')) : null));
  readonly loaded = signal<Loaded | null>(null);
  readonly error = signal<unknown>(null);
  /** Groups that are open. */
  readonly open = signal<ReadonlySet<string>>(new Set());
  /** Width of the map, CSS pixels. */
  readonly width = signal(0);

  readonly ratios = computed(() => this.loaded.value && ratiosOf(this.loaded.value.grid, this.base.value));
  /** How ranks stand at the end of what is shown. */
  readonly standings = computed(() => {
    const [loaded, ratios] = [this.loaded.value, this.ratios.value];
    return loaded && ratios ? standings(loaded.grid, ratios, this.worse.value) : [];
  });
  /** What was read, which may not be what is chosen now. */
  readonly loadedChoice = computed(
    () => this.choices.value.find((c) => c.id === this.loaded.value?.choice) ?? null,
  );
  readonly worse = computed(() => this.loadedChoice.value?.worse ?? 'either');
  /** Row of the selected rank, or of the group that it is in; -1 for none. */
  readonly selectedRow = computed(() => {
    const ranks = this.loaded.value?.grid.ranks ?? [];
    const at = this.rank.value === null ? -1 : ranks.indexOf(this.rank.value);
    return at < 0 ? -1 : this.rows.value.findLastIndex((r) => r.members.includes(at));
  });
  readonly named = computed(() => farthest(this.standings.value, this.worse.value, NAMED));
  readonly rows = computed(() =>
    rowsOf(this.standings.value, this.crew.value.hostOf, this.order.value, this.worse.value, this.open.value),
  );
  readonly scale: ReadonlySignal<Scale> = computed(() =>
    scaleOf(this.ratios.value?.of ?? new Float32Array(0), this.worse.value === 'low'),
  );
  /** The column under the cursor; -1 where there is none. */
  readonly column = computed(() => {
    const loaded = this.loaded.value;
    if (!loaded) return -1;
    const x = this.board.cursor[loaded.axis].value ?? this.pinned.value;
    return x === null ? -1 : columnAt(loaded.grid, x);
  });
  /** Where the address pins the cursor; `null` for nowhere. */
  readonly pinned = computed(() => {
    const text = param('step');
    return text !== '' && Number.isFinite(Number(text)) ? Number(text) : null;
  });
  /** The column that bars and dots show: the cursor's, else the last one that is whole. */
  readonly shown = computed(() => {
    if (this.column.value >= 0) return this.column.value;
    const present = this.ratios.value?.present;
    return present ? lastWhole(present) : -1;
  });
  /** Where the keys are on the map. */
  readonly key = signal({ row: 0, column: 0 });

  private asking: { question: string; controller: AbortController } | null = null;
  private answered = '';

  constructor(readonly board: Board) {}

  /** What the next answer depends on, as text. */
  readonly question = computed(() => {
    const choice = this.choice.value;
    if (!choice || this.width.value === 0) return '';
    const axis = this.board.axisOf(choice.chart);
    const room = Math.max(COLUMNS_MIN, Math.min(COLUMNS_MAX, Math.floor(this.width.value / CELL_PX)));
    return JSON.stringify([choice.id, axis, view.zoomOf(axis), Math.ceil(room / 20) * 20]);
  });

  /** Reads what is chosen; again, if it is there already. */
  async load(again: boolean): Promise<void> {
    const question = this.question.peek();
    const choice = this.choice.peek();
    if (question === '' || !choice || this.asking?.question === question) return;
    if (!again && question === this.answered) return;
    this.asking?.controller.abort();
    const controller = new AbortController();
    this.asking = { question, controller };
    const axis = this.board.axisOf(choice.chart);
    const [, , zoom, most] = JSON.parse(question) as [string, Axis, Reading['grid'] | null, number];
    const attempts = this.board.detail.peek()?.attempts ?? 1;
    const wanted = { runId: this.board.runId, choice, crew: this.crew.peek(), axis, zoom, most, attempts };
    try {
      const reading = await read(wanted, askPoints, controller.signal);
      batch(() => {
        const { grid } = reading;
        if (!zoom && grid.ranks.length > 0) this.board.full[axis].value = { from: grid.from, to: grid.to };
        this.loaded.value = { ...reading, axis, choice: choice.id };
        this.error.value = null;
        this.answered = question;
      });
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    } finally {
      if (this.asking?.controller === controller) this.asking = null;
    }
  }

  /** Puts the cursor on a column; -1 takes it away. */
  point(column: number): void {
    const loaded = this.loaded.peek();
    if (!loaded) return;
    this.board.point(loaded.axis, column < 0 ? null : columnX(loaded.grid, column));
  }

  /** Selects what a row stands for and keeps the cursor at a column; opens or closes a group. */
  choose(row: number, column: number): void {
    const [loaded, chosenRow] = [this.loaded.peek(), this.rows.peek()[row]];
    if (!loaded || !chosenRow) return;
    if (chosenRow.group) {
      this.toggle(chosenRow.key);
      return;
    }
    const rank = loaded.grid.ranks[chosenRow.members[0]];
    const step = column < 0 ? null : String(columnX(loaded.grid, column));
    const same = rank === this.rank.peek() && step === param('step');
    setParams({ rank: same ? null : String(rank), step: same ? null : step });
  }

  /** Selects a rank, or none. */
  select(rank: number | null): void {
    setParams({ rank: rank === null || rank === this.rank.peek() ? null : String(rank) });
  }

  /** Opens or closes a group. */
  toggle(key: string): void {
    const open = new Set(this.open.peek());
    if (!open.delete(key)) open.add(key);
    this.open.value = open;
  }

  /** Calls off what is under way. */
  end(): void {
    this.asking?.controller.abort();
  }
}
