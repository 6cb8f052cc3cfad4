/** Runs laid over this one, by their `nemo.run.id`: the list to choose from, and those chosen. */
import { useSignal } from '@preact/signals';
import * as view from '../charts/view';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { param, setParams } from '../lib/address';
import { slotDash, slotProperty } from '../lib/colour';
import { shown } from '../lib/text';
import { tellError } from '../lib/toast';
import type { TrainingBoard } from './board';
import { askIds, OTHERS_MAX } from './others';

const chosen = () => param('ids').split(',').filter(Boolean);

/** Ids hold commas as little as addresses do; one that does can't be chosen. */
const able = (id: string) => !id.includes(',');

/** The choice. */
export function Overlays({ page }: { page: TrainingBoard }) {
  const ids = useSignal<string[] | null>(null);
  const own = page.training.value?.ids ?? [];
  const now = chosen();
  const fill = () => {
    if (ids.value !== null) return;
    askIds().then(
      (found) => {
        ids.value = found.filter((id) => !own.includes(id) && able(id));
      },
      (error) => tellError('cannot list the runs', error),
    );
  };
  const add = (id: string) => id && !now.includes(id) && setParams({ ids: [...now, id].join(',') });
  const left = (ids.value ?? []).filter((id) => !now.includes(id));
  return (
    <>
      {now.length < OTHERS_MAX && (
        <select
          class="control"
          aria-label="Lay another run over this one"
          value=""
          onFocus={fill}
          onPointerDown={fill}
          onChange={(e) => {
            add(e.currentTarget.value);
            e.currentTarget.value = '';
          }}
        >
          <option value="">+ nemo_run_id</option>
          {left.map((id) => (
            <option key={id} value={id}>
              {shown(id)}
            </option>
          ))}
        </select>
      )}
      {now.length > 0 && <Chosen page={page} ids={now} />}
    </>
  );
}

function Chosen({ page, ids }: { page: TrainingBoard; ids: string[] }) {
  const others = page.others.value;
  const runs = [page.board.runId, ...others.map((o) => o.runId)];
  return (
    <ul class="chips" aria-label="Runs laid over">
      {ids.map((id) => {
        const at = others.findIndex((o) => o.name === id) + 1;
        return (
          <li key={id}>
            {at > 0 && (
              <svg class="swatch" width="18" height="8" aria-hidden="true">
                <path
                  d="M0 4h18"
                  style={{ stroke: `var(${slotProperty(at)})` }}
                  stroke-dasharray={slotDash(at).join(' ')}
                />
              </svg>
            )}
            <Name text={id} limit={24} />{' '}
            {at > 0 && page.axis.value === 'step' && others[at - 1].map === null && (
              <span class="warning">
                has no steps:{' '}
                <button type="button" class="link" onClick={() => view.setAxis('relative')}>
                  Relative
                </button>
              </span>
            )}
            {page.unknown.value.includes(id) && <span class="warning"> no run has this id</span>}
            <button
              type="button"
              aria-label={`Leave out ${shown(id)}`}
              onClick={() => setParams({ ids: ids.filter((one) => one !== id).join(',') })}
            >
              ×
            </button>
          </li>
        );
      })}
      {others.length > 0 && (
        <li>
          <Link href={`/compare?runs=${encodeURIComponent([...new Set(runs)].join(','))}`}>Compare all</Link>
        </li>
      )}
    </ul>
  );
}
