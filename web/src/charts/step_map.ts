/** Steps and times of a run as two scales of one axis: the n-th point has both. */
import type { PointsAnswer } from '../lib/points';

/** Places in the order in which the points came: times grow, steps go back where an attempt begins. */
export class StepMap {
  constructor(
    readonly steps: Float64Array,
    readonly times: Float64Array,
  ) {}

  /** Time of a step in the newest attempt that has it; `null` outside. */
  timeOf(step: number): number | null {
    for (let at = this.steps.length - 2; at >= 0; at--) {
      const [left, right] = [this.steps[at], this.steps[at + 1]];
      if (left <= step && step <= right)
        return between(step, left, right, this.times[at], this.times[at + 1]);
    }
    return null;
  }

  /** Step nearest to a time: at the ends outside, and at an attempt's end where the run stood between two. */
  nearest(time: number): number {
    const { times, steps } = this;
    const inside = Math.min(Math.max(time, times[0]), times[times.length - 1]);
    const exact = this.stepOf(inside);
    if (exact !== null) return exact;
    const after = times.findIndex((t) => t >= inside);
    return steps[Math.max(0, after - 1)];
  }

  /** Step at a time; `null` outside and where the run was between two attempts. */
  stepOf(time: number): number | null {
    let [low, high] = [0, this.times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] < time) low = middle + 1;
      else high = middle;
    }
    if (low < this.times.length && this.times[low] === time) return this.steps[low];
    if (low === 0 || low >= this.times.length || this.steps[low] < this.steps[low - 1]) return null;
    return between(time, this.times[low - 1], this.times[low], this.steps[low - 1], this.steps[low]);
  }
}

function between(x: number, x0: number, x1: number, y0: number, y1: number): number {
  return x1 === x0 ? y0 : y0 + ((x - x0) / (x1 - x0)) * (y1 - y0);
}

/** Where on the axis the points up to a number of them lie. */
interface Counted {
  points: number[];
  x: number[];
}

function counted(answer: PointsAnswer): Counted {
  const result: Counted = { points: [], x: [] };
  let points = 0;
  const labels = JSON.stringify(answer.series[0]?.labels);
  const one = answer.series.filter((s) => JSON.stringify(s.labels) === labels);
  for (const { count } of one.sort((a, b) => a.attempt - b.attempt)) {
    for (let at = 0; at < count.length; at++) {
      if (!(count[at] > 0)) continue;
      points += count[at];
      result.points.push(points);
      result.x.push(answer.x[at]);
    }
  }
  return result;
}

/** Joins one series read over steps with the same read over time; `null` when that says nothing. */
export function stepMapOf(overSteps: PointsAnswer, overTime: PointsAnswer): StepMap | null {
  const [steps, times] = [counted(overSteps), counted(overTime)];
  if (steps.x.length < 2 || times.x.length < 2) return null;
  let at = 0;
  const joined = steps.points.map((points) => {
    while (at < times.points.length - 1 && times.points[at] < points) at++;
    const before = Math.max(0, at - 1);
    if (points <= times.points[0]) return times.x[0];
    return between(points, times.points[before], times.points[at], times.x[before], times.x[at]);
  });
  return new StepMap(Float64Array.from(steps.x), Float64Array.from(joined));
}
