/** Cells and times in words. */
import { zone } from '../lib/clock';
import { formatFull, formatMinute } from '../lib/time';
import type { Gpu, GpusAnswer } from './answers';
import { counted, gpuName } from './names';
import { valueText } from './signals';

/** The times of a bin, as `10:45–10:50`. */
export function binText({ from, step_ms }: GpusAnswer, bin: number): string {
  const start = from + bin * step_ms;
  return `${formatMinute(start, zone.value)}–${formatMinute(start + step_ms, zone.value)}`;
}

/** Who a card is compared with, as `63 peers 0.80`; empty for nobody. */
export function peersText(gpu: Gpu, unit: string): string {
  if (!gpu.peers || gpu.peers.count < 2) return '';
  const others = gpu.peers.count - 1;
  const who = gpu.peers.of === 'model' ? `${others} of its model` : counted(others, 'peer');
  return `${who} ${valueText(gpu.peers.median, unit)}`;
}

/** Why there is no value; the server says it where it knows. */
export function absence(gpu: Gpu): string {
  if (gpu.state === 'missing') return gpu.reason ?? 'the card is missing';
  if (gpu.state === 'silent') return gpu.reason ?? 'its host is silent: absent, not idle';
  return gpu.reason ?? 'nothing was measured';
}

/** A cell as a screen reader hears it. */
export function cellText(answer: GpusAnswer, gpu: Gpu, bin: number): string {
  const unit = answer.signals.find((s) => s.key === answer.signal)?.unit ?? '';
  const at = bin >= 0 ? `, ${binText(answer, bin)}` : '';
  const value = bin >= 0 ? (gpu.bins?.[bin] ?? null) : gpu.value;
  const words = value === null ? `absent: ${absence(gpu)}` : valueText(value, unit);
  const peers = value === null ? '' : peersText(gpu, unit);
  return `${gpuName(gpu)}${at}: ${words}${peers && `, ${peers}`}`;
}

/** A time with its day, and UTC where it is. */
export const timeTitle = (time: number) => formatFull(time, zone.value);
