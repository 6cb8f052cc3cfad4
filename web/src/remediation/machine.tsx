/** The way of a host through its states: real or dry, in word, pill and line. */
import { Name } from '../components/name';
import { now, zone } from '../lib/clock';
import { formatFull, formatMinute, formatWhen } from '../lib/time';
import type { ActMode, Edge, Host, Mode } from './answers';
import { ACT_MODES, deedText, MODES, stateText, stationsOf } from './words';

/** The word of a mode as a pill. */
export function ModePill({ mode }: { mode: Mode }) {
  return <span class={`mode ${mode}`}>{MODES[mode] ?? mode}</span>;
}

/** How far an act goes by itself, as a pill. */
export const ActPill = ({ mode }: { mode: ActMode }) => (
  <span class={`mode ${mode === 'dry_run' ? 'dry_run' : 'real'}`}>{ACT_MODES[mode] ?? mode}</span>
);

/** Real or dry, of an edge or a host. */
export const DryPill = ({ dry }: { dry: boolean }) => (
  <span class={`mode ${dry ? 'dry_run' : 'real'}`}>{dry ? 'dry' : 'real'}</span>
);

/** What an edge tells of, as a pill. */
export function DeedPill({ edge }: { edge: Edge }) {
  const text = deedText(edge);
  return (
    <span class={`mode ${{ dry: 'dry_run', real: 'real', seen: 'off', decided: 'off' }[text]}`}>{text}</span>
  );
}

/** The states in a row. */
export function Machine({ host, edges, waits }: { host: Host; edges: Edge[]; waits: boolean }) {
  const stations = stationsOf(host, edges);
  return (
    <ol class="machine" aria-label={`States of ${host.host}`}>
      {stations.map((s, at) => (
        <li
          key={`${s.state} ${at}`}
          class={`${s.is} ${s.state} ${s.dry ? 'dry' : 'acted'} to-${stations[at + 1]?.is ?? 'end'} ${stations[at + 1]?.dry ? 'to-dry' : ''}`}
          aria-current={s.is === 'here' ? 'step' : undefined}
        >
          <i class="station" />
          <span class="state-name">{stateText(s.state)}</span>
          {at === 0 && (
            <span class="quiet">
              <Name text={host.host} limit={13} />
            </span>
          )}
          {at > 0 && s.since !== null && (
            <time class={s.is === 'here' ? 'warning' : 'quiet'} title={formatFull(s.since, zone.value)}>
              {isToday(s.since)
                ? formatMinute(s.since, zone.value)
                : formatWhen(s.since, now.value, zone.value)}
              {s.is === 'here' && waits && ', waits'}
            </time>
          )}
        </li>
      ))}
    </ol>
  );
}

const isToday = (time: number) => formatWhen(time, now.value, zone.value).includes(':');
