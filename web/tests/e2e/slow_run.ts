/** A made-up job in which one rank is slow. */
import { curve, type Push, Writer } from './push';
import type { RealServer } from './server';

const RANKS = 16;
const STEPS = 300;
/** Rank 5 is slow from here on. */
const ONSET = 120;

/** A little more or less than one, the same for the same rank and step. */
const jitter = (rank: number, step: number) =>
  1 + (((7919 * rank + 104_729 * step + 31 * rank * step) % 2003) / 2003 - 0.5) * 0.02;

/** What `tg.step` logs of one rank: each step takes as long as its slowest rank, and the others wait. */
function stepsOf(rank: number, slow: number, from: number, count: number, endMs: number) {
  const own = (r: number, step: number) => jitter(r, step) * (r === slow && step >= ONSET ? 1.25 : 1);
  const whole = (step: number) => Math.max(...Array.from({ length: RANKS }, (_, r) => own(r, step))) + 0.15;
  const labels = { rank: String(rank) };
  const points = (value: (step: number) => number) => curve(count, endMs, value, from);
  const series: NonNullable<Push['series']> = [
    {
      name: 'system/gpu/sm_clock_mhz',
      labels: { ...labels, gpu: String(rank & 7) },
      points: [{ ms: endMs, value: rank === slow ? 1404 : 1755 }],
    },
    { name: 'train_step_seconds', labels, points: points(whole) },
    { name: 'train_step_wait_seconds', labels, points: points((s) => whole(s) - own(rank, s)) },
    ...(rank === 0 ? [{ name: 'loss', points: points((s) => 2 + Math.exp(-s / 90)) }] : []),
  ];
  return series;
}

/**
 * Pushes a run of sixteen ranks whose rank `slow` is slow from step 120 on; none for -1. What it returns pushes the
 * steps that are done since, one a second.
 */
export async function train(server: RealServer, run: string, slow: number, host: (rank: number) => string) {
  const began = Date.now();
  const writers = Array.from({ length: RANKS }, () => new Writer(server.url));
  let done = 0;
  const push = async (steps: number) => {
    const [from, count, endMs] = [done, steps - done, began + (steps - STEPS) * 1000];
    for (const [rank, writer] of writers.entries())
      await writer.push({
        project: 'p',
        run,
        event: from === 0 ? 1 : 2,
        job: 'j',
        host: host(rank),
        pid: 100 + rank,
        rank,
        world: RANKS,
        series: stepsOf(rank, slow, from, count, endMs),
      });
    done = steps;
  };
  await push(STEPS);
  return async () => {
    const steps = STEPS + Math.floor((Date.now() - began) / 1000);
    if (steps > done) await push(steps);
  };
}
