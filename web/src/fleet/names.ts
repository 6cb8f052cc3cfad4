/** What hosts, cards and owners are called. */
import { shown } from '../lib/text';
import type { Gpu, Owner } from './answers';

/** What tells cards apart: the card's own number, else where it is. */
export const gpuKey = (gpu: Pick<Gpu, 'uuid' | 'host' | 'gpu'>) => gpu.uuid || `${gpu.host}/${gpu.gpu}`;

/** `host-3 · GPU 1` */
export const gpuName = ({ host, gpu }: { host: string; gpu: string }, limit = 32) =>
  gpu === '' ? shown(host, limit) : `${shown(host, limit)} · GPU ${shown(gpu, 12)}`;

/** What an owner is called; empty for none. */
export function ownerName(owner: Owner | null): string {
  if (!owner) return '';
  if (owner.run || owner.run_id) return owner.run || `run ${owner.run_id}`;
  if (owner.pod) return owner.pod;
  if (owner.job_id) return `job ${owner.job_id}`;
  return owner.container ? `container ${owner.container}` : 'a process';
}

/** What tells owners apart; empty for none. */
export function ownerKey(owner: Owner | null): string {
  if (!owner) return '';
  const { run_id, job_id, namespace, pod, container } = owner;
  return run_id ? `run ${run_id}` : JSON.stringify([job_id, namespace, pod, container]);
}

/** What kind of owner it is, in a word. */
export function ownerKind(owner: Owner): 'run' | 'pod' | 'job' | 'process' {
  if (owner.run_id) return 'run';
  if (owner.pod) return 'pod';
  return owner.job_id ? 'job' : 'process';
}

/** An owner in all words that are known: `pretrain-7b, job 48213, pod ml/train-0`. */
export function ownerText(owner: Owner | null): string {
  if (!owner) return 'no owner';
  const words = [ownerName(owner)];
  if (owner.job_id && !words[0].includes(owner.job_id)) words.push(`job ${owner.job_id}`);
  if (owner.pod) words.push(`pod ${owner.namespace ? `${owner.namespace}/` : ''}${owner.pod}`);
  if (owner.shared) words.push(`shared by ${owner.shared}`);
  if (owner.confidence) words.push(owner.confidence);
  return words.map((w) => shown(w)).join(', ');
}

/** `1 GPU`, `2 GPUs`. */
export const counted = (count: number, what: string) =>
  `${count.toLocaleString('en-US')} ${what}${count === 1 ? '' : 's'}`;
