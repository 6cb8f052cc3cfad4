/** Series of many runs as one line for each group: mean, and a band from lowest to highest. */
import { breaksOf, type Line, type Mark, type Shape } from '../charts/shape';
import type { RunDetail } from '../lib/answers';
import type { Columns, PointsAnswer } from '../lib/points';
import { attributeText } from './config';

/** What runs are grouped by: each alone, a tag, a label of the series, or an attribute. */
export type GroupBy = 'none' | 'tag' | 'host' | 'rank' | `attribute:${string}`;

/** Cells that series are brought onto before they are put together. */
const CELLS = 300;

/** Reads the address; rubbish is each run alone. */
export function parseGroup(text: string): GroupBy {
  if (text === 'tag' || text === 'host' || text === 'rank') return text;
  return text.startsWith('attribute:') ? (text as GroupBy) : 'none';
}

/** Names of the groups that a series belongs to: several when its run has several tags. */
export function groupsOf(by: GroupBy, run: RunDetail, labels: Record<string, string>): string[] {
  switch (by) {
    case 'none':
      return [run.run_id];
    case 'tag':
      return run.tags.length > 0 ? run.tags : ['without a tag'];
    case 'host':
    case 'rank':
      return [labels[by] ?? (by === 'host' && run.hosts.length === 1 ? run.hosts[0] : `without ${by}`)];
    default: {
      const key = by.slice('attribute:'.length);
      const has = Object.hasOwn(run.attributes, key);
      return [has ? attributeText(run.attributes[key]) : 'without it'];
    }
  }
}

/** One series of one run with the attempts put together. */
export interface Track {
  runId: string;
  labels: Record<string, string>;
  last: Float64Array;
  min: Float64Array;
  max: Float64Array;
  count: Float64Array;
  interval: number;
}

/** Puts attempts of a series together: where a newer one begins, the older one was thrown away. */
export function tracksOf(columns: Columns[]): Track[] {
  const tracks = new Map<string, Track>();
  for (const column of columns.toSorted((a, b) => a.attempt - b.attempt)) {
    const key = JSON.stringify([column.runId, column.labels]);
    const track = tracks.get(key);
    if (!track) {
      const { runId, labels, interval } = column;
      const copy = (values: Float64Array) => Float64Array.from(values);
      tracks.set(key, {
        runId,
        labels,
        interval,
        last: copy(column.last),
        min: copy(column.min),
        max: copy(column.max),
        count: copy(column.count),
      });
      continue;
    }
    const start = column.count.findIndex((c) => c > 0);
    if (start < 0) continue;
    for (const part of ['last', 'min', 'max', 'count'] as const)
      track[part].set(column[part].subarray(start), start);
  }
  return [...tracks.values()];
}

/** Puts a track onto cells of the same width, so that runs that log at other places can be put together. */
function celled(track: Track, x: Float64Array, cells: Float64Array): Track {
  const width = cells[1] - cells[0];
  const empty = () => new Float64Array(cells.length).fill(Number.NaN);
  const next: Track = {
    ...track,
    last: empty(),
    min: empty(),
    max: empty(),
    count: new Float64Array(cells.length),
  };
  for (let at = 0; at < x.length; at++) {
    if (!(track.count[at] > 0)) continue;
    const cell = Math.min(cells.length - 1, Math.max(0, Math.ceil((x[at] - cells[0]) / width)));
    next.count[cell] += track.count[at];
    if (!Number.isFinite(track.last[at])) continue;
    next.last[cell] = track.last[at];
    if (!(next.min[cell] <= track.min[at])) next.min[cell] = track.min[at];
    if (!(next.max[cell] >= track.max[at])) next.max[cell] = track.max[at];
  }
  return { ...next, interval: Math.max(track.interval, width) };
}

/** A group: what it is called, and how many series and runs are in it. */
export interface Group {
  name: string;
  tracks: Track[];
}

/** Sorts the tracks of one metric into groups, in the order of `names` as far as it has them. */
export function grouped(by: GroupBy, tracks: Track[], runs: ReadonlyMap<string, RunDetail>): Group[] {
  const groups = new Map<string, Group>();
  for (const track of tracks) {
    const run = runs.get(track.runId);
    if (!run) continue;
    for (const name of groupsOf(by, run, track.labels)) {
      const group = groups.get(name) ?? { name, tracks: [] };
      group.tracks.push(track);
      groups.set(name, group);
    }
  }
  return [...groups.values()];
}

/** A chart of groups. */
export function shapeOfGroups(
  answer: PointsAnswer,
  columns: Columns[],
  groups: Group[],
  nameOf: (group: Group) => string,
): Shape {
  const together = groups.some((g) => g.tracks.length > 1);
  const cells = together && answer.x.length > CELLS ? cellsOf(answer.x) : answer.x;
  const lines = groups.map((group) => {
    const tracks =
      cells === answer.x ? group.tracks : group.tracks.map((track) => celled(track, answer.x, cells));
    return lineOf(cells, group.name, nameOf(group), tracks);
  });
  return {
    x: cells,
    lines,
    marks: marksOf(columns),
    holes: [],
    attempts: [],
    lost: null,
    total: groups.length,
  };
}

function cellsOf(x: Float64Array): Float64Array {
  const [from, to] = [x[0], x[x.length - 1]];
  return Float64Array.from({ length: CELLS }, (_, at) => from + ((to - from) * at) / (CELLS - 1));
}

function lineOf(x: Float64Array, group: string, name: string, tracks: Track[]): Line {
  const mean = new Float64Array(x.length).fill(Number.NaN);
  const [min, max] = [mean.slice(), mean.slice()];
  const count = new Float64Array(x.length);
  for (let at = 0; at < x.length; at++) {
    let n = 0;
    for (const track of tracks) {
      count[at] += track.count[at];
      if (!Number.isFinite(track.last[at])) continue;
      n += 1;
      // Step by step: two of the largest numbers have a mean, too.
      mean[at] = n === 1 ? track.last[at] : mean[at] + (track.last[at] - mean[at]) / n;
      if (!(min[at] <= track.min[at])) min[at] = track.min[at];
      if (!(max[at] >= track.max[at])) max[at] = track.max[at];
    }
  }
  const spacing = Math.max(...tracks.map((t) => t.interval), medianStep(x, mean));
  return {
    key: name,
    labels: { group },
    attempt: 1,
    ghost: false,
    y: mean,
    raw: mean,
    min,
    max,
    count,
    spacing,
    breaks: breaksOf(x, mean, count, spacing),
  };
}

function medianStep(x: Float64Array, y: Float64Array): number {
  const present = x.filter((_, at) => Number.isFinite(y[at]));
  const gaps = Array.from(present.subarray(1), (v, at) => v - present[at]).sort((a, b) => a - b);
  return gaps.length > 0 ? gaps[(gaps.length - 1) >> 1] : 0;
}

function marksOf(columns: Columns[]): Mark[] {
  const marks = new Map<string, Mark>();
  for (const { x, kind, count } of columns.flatMap((c) => c.nonFinite)) {
    const mark = marks.get(`${kind} ${x}`) ?? { x, kind, count: 0 };
    mark.count += count;
    marks.set(`${kind} ${x}`, mark);
  }
  return [...marks.values()].sort((a, b) => a.x - b.x);
}
