/** Why there is nothing where a lane would be. */
import { shown } from '../lib/text';
import type { Gpu } from './answers';
import type { LaneSpec } from './lanes';

/** Why a lane of a card has nothing. */
export function absentText(gpu: Gpu, lane: LaneSpec): string {
  const missing = gpu.unsupported.find((field) => lane.fields.some((part) => field.includes(part)));
  if (missing) return `Absent: the card or its driver does not support ${shown(missing)}.`;
  if (gpu.state === 'missing') return 'Absent: the card is missing.';
  if (gpu.state === 'silent') return 'Absent: its host is silent.';
  return 'Absent: no source has sent it in this range.';
}
