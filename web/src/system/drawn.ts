/** What a lane draws: lines, areas and cells, put together from its series and what is selected. */
import type { Look } from '../charts/model';
import { holesOf, type Line, type Mark, type Shape } from '../charts/shape';
import type { LaneData } from './board';
import type { Show } from './look';
import { countsOf, gapsOf, type Member, outliersOf, type Spread, spreadOf } from './series';
import type { LaneSpec } from './specs';

/** A series that is told apart by name and colour. */
export interface Named {
  member: Member;
  /** Colour slot. */
  slot: number;
  selected: boolean;
}

/** A part of the selected card. */
export interface Part {
  word: string;
  slot: number;
  y: Float64Array;
}

/** Everything about a lane's picture but its size. */
export interface Drawn {
  show: Show;
  /** The x of the series themselves; that of the lines holds the peers' too. */
  x: Float64Array;
  shape: Shape;
  looks: { slot: number | 'peer'; alpha: number; dashed: boolean }[];
  named: Named[];
  /** All others as one; `null` where each has its own line. */
  peers: Spread | null;
  /** How many those are. */
  peerCount: number;
  parts: Part[];
  /** Rows of the heat map, in order. */
  rows: Member[];
  /** What cells of the heat map are held against. */
  spread: Spread | null;
}

/** What decides how a lane is drawn. */
export interface Choice {
  show: Show;
  /** Whether a series belongs to what is selected. */
  selects: (member: Member) => boolean;
  slot: (member: Member) => number;
  peers: boolean;
  range: [from: number, to: number];
}

/** Others that are named at most. */
export const OUTLIERS = 5;
/** Lines drawn in one lane at most. */
const LINES = 256;
/** With more lines than colours, only what is named has one. */
const COLOURED = 10;

/** Values of one x put on another that holds all of it. */
function onto(x: Float64Array, from: Float64Array, values: Float64Array, empty = Number.NaN): Float64Array {
  if (x === from) return values;
  const out = new Float64Array(x.length).fill(empty);
  let at = 0;
  for (let source = 0; source < from.length; source++) {
    while (at < x.length && x[at] < from[source]) at++;
    if (at < x.length && x[at] === from[source]) out[at] = values[source];
  }
  return out;
}

function merged(a: Float64Array, b: Float64Array): Float64Array {
  return a === b ? a : Float64Array.from(new Set([...a, ...b])).sort();
}

/** A line; with its own band where it is alone, else the band is that of the peers. */
function lineOf(x: Float64Array, from: Float64Array, member: Member, alone = false): Line {
  const y = onto(x, from, member.y);
  return {
    key: member.text,
    labels: { series: member.text },
    attempt: 1,
    ghost: false,
    y,
    raw: y,
    min: alone ? onto(x, from, member.min) : y,
    max: alone ? onto(x, from, member.max) : y,
    count: countsOf(y),
    breaks: gapsOf(x, { y, spacing: member.spacing }),
    spacing: member.spacing,
  };
}

function spreadLine(x: Float64Array, spread: Spread): Line {
  const y = onto(x, spread.x, spread.median);
  return {
    key: 'median',
    labels: { series: 'median' },
    attempt: 1,
    ghost: false,
    y,
    raw: y,
    min: onto(x, spread.x, spread.low),
    max: onto(x, spread.x, spread.high),
    count: countsOf(y),
    breaks: gapsOf(x, { y, spacing: spread.spacing }),
    spacing: spread.spacing,
  };
}

/** Colours of parts beside the largest one, which has the card's own. */
const PART_SLOTS = [4, 3, 5, 6, 7, 8, 9];

function partsOf(named: Named | undefined): Part[] {
  if (!named?.member.parts) return [];
  const weight = (y: Float64Array) => y.reduce((sum, v) => sum + (v || 0), 0);
  // Parts overlap in time, so they are not put on top of each other: the greatest lies behind.
  return [...named.member.parts]
    .filter(([, y]) => weight(y) > 0)
    .sort(([, a], [, b]) => weight(b) - weight(a))
    .map(([word, y], at) => ({
      word,
      y,
      slot: at === 0 ? named.slot : PART_SLOTS[(at - 1) % PART_SLOTS.length],
    }));
}

/** Series that are told apart, those of what is selected first. */
function namedOf(lane: LaneSpec, data: LaneData, all: Spread | null, choice: Choice): Named[] {
  const { members } = data;
  const chosen = members.filter(choice.selects);
  if (lane.metrics.length > 1) {
    // Several metrics in one lane are of one host: that of what is selected, else the first.
    const host = (chosen[0] ?? members[0])?.labels.host;
    const own = members.filter((m) => m.labels.host === host);
    return own.map((member, slot) => ({ member, slot, selected: true }));
  }
  if (members.length === 1) {
    const slot = lane.subject === 'gpu' ? choice.slot(members[0]) : 0;
    return [{ member: members[0], slot, selected: true }];
  }
  const each = !all || (choice.show === 'lines' && members.length <= COLOURED);
  const out = all ? outliersOf(data.x, members, all, choice.range, OUTLIERS) : [];
  return [...new Set([...chosen, ...out, ...(each ? members : [])])].map((member) => ({
    member,
    slot: choice.slot(member),
    selected: chosen.includes(member),
  }));
}

/** Puts a lane together. */
export function drawnOf(lane: LaneSpec, data: LaneData, choice: Choice, marks: Mark[]): Drawn {
  const { members } = data;
  const single = lane.metrics.length === 1;
  const all = data.spread ?? (members.length > 1 && single ? spreadOf(data.x, members) : null);
  const named = namedOf(lane, data, all, choice);
  const apart = new Set(named.map((n) => n.member));
  const others = single ? members.filter((m) => !apart.has(m)) : [];
  const spreading = choice.show === 'spread' && all !== null && choice.peers;
  const peers = spreading ? (data.spread ?? (others.length > 0 ? spreadOf(data.x, others) : null)) : null;
  const x = peers ? merged(data.x, peers.x) : data.x;
  const lines: Line[] = [];
  const looks: Drawn['looks'] = [];
  const draw = (line: Line, slot: number | 'peer', alpha: number) => {
    lines.push(line);
    looks.push({ slot, alpha, dashed: false });
  };
  if (choice.show !== 'map') {
    if (peers) draw(spreadLine(x, peers), 'peer', 1);
    if (choice.show === 'lines')
      for (const member of others.slice(0, LINES)) draw(lineOf(x, data.x, member), 'peer', 0.5);
    for (const { member, slot } of named.toReversed())
      draw(lineOf(x, data.x, member, members.length === 1), lane.demoted ? 'peer' : slot, 1);
  }
  const shape: Shape = {
    x,
    lines,
    marks,
    holes: holesOf(lines),
    attempts: [],
    lost: null,
    total: data.total,
  };
  return {
    show: choice.show,
    x: data.x,
    shape,
    looks,
    named,
    peers,
    peerCount: data.spread ? Math.max(0, ...data.spread.count) : others.length,
    parts: partsOf(named.find((n) => n.selected) ?? named[0]),
    rows: choice.show === 'map' ? members : [],
    spread: all,
  };
}

/** How a line looks in a theme. */
export function lookOf(
  look: Drawn['looks'][number],
  colours: { peer: string; series: (slot: number) => string },
): Look {
  return {
    stroke: look.slot === 'peer' ? colours.peer : colours.series(look.slot),
    dash: [],
    alpha: look.alpha,
  };
}
