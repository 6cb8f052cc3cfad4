/** What happened to the engines of a model, on the charts' time axis. */
import type { FleetEvent } from '../fleet/answers';
import { timeTitle } from '../fleet/words';
import { zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { shown, visible } from '../lib/text';
import { formatSecond } from '../lib/time';
import type { Reset } from './charts';
import type { Inference } from './model';
import { modelName } from './words';

/** A restart that the server tells of is the one that a counter shows within this, milliseconds. */
const SAME_RESTART = 600_000;
/** Marks that stand closer than this are one, share of the axis. */
const MERGED = 0.09;

interface Mark {
  time: number;
  /** What stands beside the mark. */
  brief: string;
  texts: string[];
  critical: boolean;
}

/** Restarts and events of the model's targets as marks. */
export function marksOf(
  resets: Reset[],
  events: FleetEvent[],
  of: { model: string; instances: Set<string> },
): Mark[] {
  const own = events.filter(({ labels }) => {
    if (labels.model !== undefined) return labels.model === of.model;
    return labels.instance === undefined || of.instances.has(labels.instance);
  });
  const isTold = (r: Reset) =>
    own.some(
      ({ body, labels, time }) =>
        body.what === 'restart' && labels.instance === r.instance && Math.abs(time - r.time) < SAME_RESTART,
    );
  return [
    ...resets
      .filter((r) => !isTold(r))
      .map((r) => ({
        time: r.time,
        brief: `${shown(r.instance, 32)} began anew`,
        texts: [`${shown(r.instance, 32)} began anew`],
        critical: false,
      })),
    ...own.map((e) => ({
      time: e.time,
      brief:
        e.body.what === 'restart' && e.labels.instance
          ? `${shown(e.labels.instance, 32)} restarted`
          : shown(e.text, 44),
      texts: [visible(e.text)],
      critical: e.severity === 'critical',
    })),
  ].sort((a, b) => a.time - b.time);
}

function merged(marks: Mark[], from: number, to: number): Mark[] {
  const groups: Mark[] = [];
  for (const mark of marks) {
    if (mark.time < from || mark.time > to) continue;
    const near = groups.at(-1);
    if (near && mark.time - near.time < (to - from) * MERGED) {
      near.texts.push(...mark.texts);
      near.critical ||= mark.critical;
    } else groups.push({ ...mark, texts: [...mark.texts] });
  }
  return groups;
}

/** The lane with the cursor's flag. */
export function EngineLane({ page }: { page: Inference }) {
  const model = page.chosen.value;
  if (!model) return null;
  const { from, to } = page.rangeOf('time');
  const share = (time: number) => ((time - from) / (to - from)) * 100;
  const pictures = page.pictures.value;
  const resets = pictures?.model === model.model ? pictures.resets : [];
  const instances = new Set(model.replicas.map((r) => r.instance));
  const marks = merged(marksOf(resets, page.events.value, { model: model.model, instances }), from, to);
  const at = page.cursor.time.value;
  return (
    <section class="lane" aria-label="Events of the model">
      <h2 title={visible(model.model)}>{modelName(model.model, 18)}</h2>
      <div class="track">
        {marks.map((mark) => (
          <span
            key={mark.time}
            class={`event${mark.critical ? '' : ' warning'}${share(mark.time) > 70 ? ' left' : ''}`}
            style={{ left: `${share(mark.time)}%` }}
            title={`${timeTitle(mark.time)}\n${mark.texts.join('\n')}`}
          >
            <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
              <path d="M5 0 10 5 5 10 0 5z" />
            </svg>
            {mark.texts.length === 1 ? mark.brief : `${formatCount(mark.texts.length)} events`}
          </span>
        ))}
        {marks.length === 0 && <span class="calm quiet">no restart and no event in this range</span>}
        {at !== null && share(at) >= 0 && share(at) <= 100 && (
          <span class={share(at) > 70 ? 'flag left' : 'flag'} style={{ left: `${share(at)}%` }}>
            <span>
              {formatSecond(at, zone.value)}
              {page.pinned.value ? ' · pinned' : ''}
            </span>
          </span>
        )}
      </div>
    </section>
  );
}
