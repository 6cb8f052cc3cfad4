/** Who had a card when, and its Xids, over the axis of its lanes. */
import { zone } from '../lib/clock';
import { shown } from '../lib/text';
import { formatMinute } from '../lib/time';
import type { Gpu, Owner } from './answers';
import { ownerKey, ownerKind, ownerName, ownerText } from './names';
import { timeTitle } from './words';

/** The strip. */
export function OwnerStrip(props: {
  owners: NonNullable<Gpu['owners']>;
  range: { from: number; to: number };
  xids: Gpu['xids'];
  /** Who has it now, where the spans are not known. */
  now: Owner | null;
}) {
  const { owners, range, xids, now } = props;
  const { from, to } = range;
  const share = (time: number) => Math.max(0, Math.min(100, ((time - from) / (to - from)) * 100));
  const spans = owners.filter((o) => o.to >= from && o.from <= to);
  const words = spans.map(
    (o) => `${ownerText(o.owner)} ${formatMinute(o.from, zone.value)}–${formatMinute(o.to, zone.value)}`,
  );
  return (
    <div class="owner-strip" role="img" aria-label={`Owners: ${words.join('; ') || ownerText(now)}`}>
      <span class="title quiet">owner</span>
      <div class="track">
        {spans.map((o) => (
          <span
            key={`${o.from} ${ownerKey(o.owner)}`}
            class={`span ${o.owner ? ownerKind(o.owner) : 'idle'}`}
            style={{ left: `${share(o.from)}%`, width: `${Math.max(0.4, share(o.to) - share(o.from))}%` }}
            title={`${ownerText(o.owner)}, ${timeTitle(o.from)} – ${timeTitle(o.to)}`}
          >
            {shown(ownerName(o.owner), 24)}
          </span>
        ))}
        {xids
          .filter((x) => !x.userspace && x.time >= from && x.time <= to)
          .map((x) => (
            <span
              key={`${x.time} ${x.xid}`}
              class="xid"
              style={{ left: `${share(x.time)}%` }}
              title={`Xid ${x.xid}, ${timeTitle(x.time)}`}
            >
              <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
                <path d="M5 0 10 5 5 10 0 5z" />
              </svg>
            </span>
          ))}
      </div>
    </div>
  );
}
