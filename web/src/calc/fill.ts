/** Inputs that this server knows already: of a run, or of an engine that serves a model. */
import { askProm } from '../explore/answer';
import type { Health } from '../health/answers';
import { askHealth } from '../health/answers';
import { askEngines, type Model, numberOf } from '../inference/answers';
import type { RunDetail, RunRow, RunsAnswer } from '../lib/answers';
import { askJson } from '../lib/api';
import { figureOf } from '../money/panel';

const RUNS_LISTED = 50;
/** What engines are judged by: so much before now. */
const WINDOW_MS = 5 * 60_000;

/** A replica as it was seen: its mean batch, and what it wrote. */
export interface Point {
  name: string;
  batch: number;
  tokensPerSecond: number;
}

/** What an engine was seen to do, and when. */
export interface Measured {
  model: string;
  time: number;
  points: Point[];
  /** Cards of a replica; `null` where nobody tells. */
  cards: number | null;
  /** Seconds for a token that are wanted; `null` for none. */
  tpot: number | null;
  /** What could not be filled, and why. */
  missing: string[];
}

/** Runs to choose from, the newest first. */
export async function askRuns(signal?: AbortSignal): Promise<RunRow[]> {
  return (await askJson<RunsAnswer>(`runs?limit=${RUNS_LISTED}`, { signal })).runs;
}

/** Models to choose from, as they were in the last minutes. */
export async function askModels(now: number, signal?: AbortSignal): Promise<Model[]> {
  return (await askEngines(now - WINDOW_MS, now, null, signal)).models;
}

const text = (value: number) => String(Number(value.toPrecision(10)));

/** Attributes that say how large a model is. */
const SIZES: Record<string, RegExp> = {
  params: /(^|[/_.])(active_)?(n_|num_)?param(eter)?s?(_count)?$/i,
  layers: /(^|[/_.])(n_|num_)?(hidden_)?layers?$/i,
  hidden_size: /(^|[/_.])(hidden_size|d_model|n_embd|width)$/i,
  seq_len: /(^|[/_.])(seq_len(gth)?|sequence_length|block_size|context(_length)?)$/i,
};

function attributesOf({ attributes }: RunDetail): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, pattern] of Object.entries(SIZES)) {
    const hit = Object.entries(attributes).find(([key, value]) => pattern.test(key) && Number(value) > 0);
    if (hit) found[name] = String(Number(hit[1]));
  }
  return found;
}

interface Vector {
  result: { metric: Record<string, string>; value: [number, string] }[];
}

/** Cards of a run by the server's own series. */
async function cardsOf(runId: string): Promise<{ count: number; model: string } | null> {
  const query = `tg_run_gpus{run_id=${JSON.stringify(runId)}}`;
  const { data } = await askProm<Vector>('query', { query });
  const all = data.result.map(({ metric, value }) => ({
    count: Number(value[1]),
    model: metric.gpu_model ?? '',
  }));
  const counted = all.filter(({ count }) => count > 0);
  if (counted.length === 0) return null;
  return {
    count: counted.reduce((sum, c) => sum + c.count, 0),
    model: counted.length === 1 ? counted[0].model : '',
  };
}

/** What of a run is known of a calculator's inputs. */
export async function fillFromRun(runId: string, names: string[]): Promise<Record<string, string>> {
  const [detail, health, cards] = await Promise.all([
    askJson<RunDetail>(`runs/${encodeURIComponent(runId)}`),
    askHealth(runId).catch(() => null),
    cardsOf(runId).catch(() => null),
  ]);
  const known: Record<string, string | null> = { ...attributesOf(detail), ...figuresOf(health) };
  if (cards) {
    known.gpus = text(cards.count);
    if (cards.model) known.gpu = cards.model;
  }
  return kept(known, names);
}

function figuresOf(health: Health | null): Record<string, string | null> {
  if (!health) return {};
  const { figures, money } = health;
  const value = (figure: { value: number | null } | null | undefined) =>
    figure?.value === null || figure?.value === undefined ? null : text(figure.value);
  return {
    tokens_per_second: value(figures.tokens_per_second),
    mtbi: value(figures.mtbi_seconds),
    mtbi_seconds: value(figures.mtbi_seconds),
    step_seconds: value(figures.step_seconds_median),
    price: money.price?.usd_per_gpu_hour ? text(money.price.usd_per_gpu_hour) : null,
    tokens_per_joule: value(figureOf(money, 'tokens_per_joule')),
  };
}

/** What is there, of what is asked for. */
function kept(known: Record<string, string | null>, names: string[]): Record<string, string> {
  const found = Object.entries(known).filter(([name, value]) => value !== null && names.includes(name));
  return Object.fromEntries(found) as Record<string, string>;
}

/** Points of a model: each replica by its mean batch. One that is down or idle has none. */
export function measuredOf(model: Model, time: number): Measured {
  const points = model.replicas.flatMap(({ instance, dp_rank, values }) => {
    const batch = numberOf(values.running?.value);
    const tokens = numberOf(values.output_tokens_per_second?.value);
    const name = dp_rank ? `${instance} · rank ${dp_rank}` : instance;
    return batch > 0 && tokens > 0 ? [{ name, batch, tokensPerSecond: tokens }] : [];
  });
  const { total } = model.targets;
  const cards = model.gpus !== null && total > 0 ? model.gpus / total : null;
  const missing = [
    ...(points.length === 0 ? ['no replica had requests in the last five minutes'] : []),
    ...(cards === null ? [model.gpus_reason ?? 'nobody tells how many cards serve it'] : []),
  ];
  return { model: model.model, time, points, cards, tpot: model.objectives?.tpot ?? null, missing };
}

/** What of an engine is known of a calculator's inputs. */
export function fillFromModel(model: Model, names: string[]): Record<string, string> {
  const figure = (key: string) => {
    const value = numberOf(model.values[key]?.value);
    return Number.isFinite(value) ? text(value) : null;
  };
  const { points, cards } = measuredOf(model, 0);
  const batches = points.map((p) => p.batch).filter((b) => b >= 1);
  const ladder = [1, 8, 32, 64, 128, ...batches.map((b) => Number(b.toPrecision(3)))];
  return kept(
    {
      gpu: model.price?.gpu_model ?? null,
      price: model.price?.usd_per_gpu_hour ? text(model.price.usd_per_gpu_hour) : null,
      gpus: cards === null ? null : text(names.includes('context') ? cards : (model.gpus ?? cards)),
      tokens_per_second: figure('output_tokens_per_second'),
      watts: figure('power_watts'),
      occupancy: figure('occupancy_ratio'),
      batch: [...new Set(ladder)].sort((a, b) => a - b).join(','),
    },
    names,
  );
}
