/** The panels of the Training tab: which instrument each shows, and how. */
import type { Instrument, Switch, TrainingAnswer } from './answers';

/** A panel of one instrument. */
export interface PanelSpec {
  id: string;
  /** The instrument's key. */
  key: string;
  title: string;
  /** Where the title says the unit; else it is the instrument's. */
  unit?: string;
  /** Whether zero belongs on the value axis. */
  zero: boolean;
}

/** In the order of the page; the step breakdown stands behind the sixth. */
export const PANELS: readonly PanelSpec[] = [
  { id: 'loss', key: 'loss', title: 'Loss', zero: false },
  { id: 'tokens', key: 'tokens_per_sec', title: 'Tokens per second', unit: '', zero: true },
  { id: 'mfu', key: 'throughput_tflops', title: 'MFU', unit: '%', zero: true },
  { id: 'grad_norm', key: 'grad_norm', title: 'Gradient norm', zero: false },
  { id: 'learning_rate', key: 'learning_rate', title: 'Learning rate', zero: true },
  { id: 'memory', key: 'memory_allocated_gb', title: 'Memory by rank', zero: true },
  { id: 'tflops', key: 'throughput_tflops', title: 'TFLOP/s per GPU', unit: '', zero: true },
];

/** The counter of skipped iterations: it is told in the panel of the loss. */
export const SKIPPED = 'skipped_iters';
/** The histogram of step times. */
export const STEP_TIME = 'step_duration_ms';
/** Step times that are not the trainer's own metric: of spans, or of `tg.step`. */
export const STEP_SECONDS = 'train_step_seconds';

/** Keys whose points are read. */
export const KEYS = [...new Set([...PANELS.map((p) => p.key), SKIPPED])];

/** The instrument of a key. */
export function instrumentOf(training: TrainingAnswer | null, key: string): Instrument | undefined {
  return training?.instruments.find((i) => i.key === key);
}

/** Why an instrument has no points: a sentence, and the switch to copy if there is one. */
export function absence(training: TrainingAnswer, key: string): { text: string; command: string | null } {
  const text = instrumentOf(training, key)?.text ?? 'No process of this run has sent it.';
  // What can be switched on stands between backticks.
  const named = [...text.matchAll(/`([^`]+)`/g)].map((found) => found[1]);
  const command = named.find((name) => training.switches.some((s) => s.key === name));
  return { text, command: command ?? named.find((name) => name.startsWith('--')) ?? null };
}

/** The switch whose name has this in it, and what it would fill. */
export function switchOf(training: TrainingAnswer, part: string): Switch | undefined {
  return training.switches.find((s) => s.key.includes(part));
}
