/** The selected card: a line of facts below the map, and its history beside that of its peers. */
import { useComputed, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Failure } from '../components/failure';
import { Link } from '../components/link';
import { isAbort } from '../lib/api';
import { zone } from '../lib/clock';
import { gpuPath } from '../lib/route';
import { shown } from '../lib/text';
import { formatMinute } from '../lib/time';
import { absentText } from './absence';
import { askGpus, type Gpu } from './answers';
import { LaneRow, laneText } from './lane_view';
import { peersOf, SHORT_LANES, type Subject, sameSubject } from './lanes';
import type { Fleet } from './model';
import { counted, gpuKey, gpuName, ownerText } from './names';
import { OwnerStrip } from './owner_strip';
import { valueText } from './signals';
import { useHistory } from './use_history';
import { absence, binText, peersText } from './words';

const STEPS = 160;

/** Values beside the chosen signal, and their words. */
const FACTS: [metric: string, text: string, unit: string][] = [
  ['tg_gpu_power_watts', 'power', 'W'],
  ['tg_gpu_tensor_active_ratio', 'tensor', 'ratio'],
  ['tg_gpu_sm_clock_hertz', 'SM clock', 'Hz'],
  ['tg_gpu_temperature_margin_celsius', 'margin', '°C'],
];

/** More about the selected card than the map knows. */
export function useDetail(fleet: Fleet) {
  const detail = useSignal<Gpu | null>(null);
  const gpu = fleet.selected.value;
  const key = gpu ? gpuKey(gpu) : '';
  const { from, to } = fleet.range.range.value;
  useEffect(() => {
    if (!gpu) {
      detail.value = null;
      return;
    }
    const controller = new AbortController();
    const query = { signal: fleet.colour.peek().key, uuid: gpu.uuid, host: gpu.uuid ? '' : gpu.host };
    const span = { from: Math.round(from), to: Math.round(to), bins: 36 };
    askGpus({ ...query, ...span }, controller.signal).then(
      (answer) => {
        detail.value = answer.gpus.find((g) => gpuKey(g) === key) ?? null;
      },
      (error: unknown) => {
        // The map goes on without the further facts.
        if (!isAbort(error)) detail.value = null;
      },
    );
    return () => controller.abort();
  }, [key, from, to]);
  return detail;
}

/** `host-3 · GPU 1   10:50 0.71   63 peers 0.80 …` */
export function FactsLine({ fleet, detail }: { fleet: Fleet; detail: Gpu | null }) {
  const gpu = fleet.selected.value;
  const answer = fleet.gpus.value;
  if (!gpu || !answer) {
    const hidden = fleet.cell.value !== '' && answer !== null;
    return (
      <p class="facts-line quiet">
        {hidden ? 'The selected card is not among these.' : 'Arrow keys or a click select a card.'}
      </p>
    );
  }
  const unit = fleet.info.value?.unit ?? '';
  const bin = fleet.bin.value;
  const value = bin >= 0 ? (gpu.bins?.[bin] ?? null) : gpu.value;
  const peers = peersText(gpu, unit);
  const latest = detail && gpuKey(detail) === gpuKey(gpu) ? detail.latest : undefined;
  return (
    <p class="facts-line">
      <b>{gpuName(gpu)}</b>
      <span>
        {bin >= 0 ? binText(answer, bin) : 'now'}{' '}
        <b>{value === null ? `absent: ${shown(absence(gpu), 120)}` : valueText(value, unit)}</b>
      </span>
      {peers && <span>{peers}</span>}
      {FACTS.map(([metric, text, of]) => {
        const known = latest?.[metric];
        if (!known || known.value === null) return null;
        return (
          <span key={metric}>
            {text} <b>{laneText(known.value, of)}</b>
          </span>
        );
      })}
      <span>
        owner <b>{ownerText(gpu.owner)}</b>
      </span>
      <span class="hint quiet">Enter opens</span>
    </p>
  );
}

/** The card with its peers over the range. */
export function SelectionPanel({ fleet, detail }: { fleet: Fleet; detail: Gpu | null }) {
  const gpu = fleet.selected.value;
  const { history, error } = useHistory(useCard(fleet), fleet.range.range, SHORT_LANES, STEPS);
  const cursor = useComputed(() => {
    const answer = fleet.gpus.value;
    return fleet.bin.value < 0 || !answer ? null : answer.from + (fleet.bin.value + 0.5) * answer.step_ms;
  });
  if (!gpu) return null;
  const { from, to } = fleet.range.range.value;
  const owners = detail && gpuKey(detail) === gpuKey(gpu) ? (detail.owners ?? []) : [];
  const count = Math.max(0, (gpu.peers?.count ?? 1) - 1);
  const share = (time: number) => ((time - from) / (to - from)) * 100;
  const at = cursor.value;
  return (
    <section class="panel selection" aria-label="The selected card">
      <header>
        <h2>
          {gpuName(gpu, 24)}
          {count > 0 && ` and its ${counted(count, 'peer')}`}
        </h2>
        <Link href={gpuPath(gpu.host, gpu.gpu, gpu.uuid)}>GPU page</Link>
      </header>
      {error.value !== null && <Failure error={error.value} retry={() => void fleet.load()} />}
      <div class="lanes">
        <OwnerStrip owners={owners} range={{ from, to }} xids={gpu.xids} now={gpu.owner} />
        {SHORT_LANES.map((lane) => (
          <LaneRow
            key={lane.id}
            lane={lane}
            history={history}
            cursor={cursor}
            absent={absentText(gpu, lane)}
            ticks={false}
          />
        ))}
        {at !== null && (
          <div class="overlay" aria-hidden="true">
            <i class="cursor-line" style={{ left: `${share(at)}%` }} />
          </div>
        )}
        <div class="ends quiet">
          <span>{formatMinute(from, zone.value)}</span>
          <span>
            {formatMinute(to, zone.value)}
            {zone.value === 'utc' ? ' UTC' : ''}
          </span>
        </div>
      </div>
    </section>
  );
}

/** The selected card and its peers, anew only when they are others. */
function useCard(fleet: Fleet) {
  const kept = useRef<Subject | null>(null);
  return useComputed(() => {
    const gpu = fleet.selected.value;
    const now = gpu && { gpu, peers: peersOf(gpu, fleet.gpus.value?.gpus ?? []) };
    if (!sameSubject(kept.current, now)) kept.current = now;
    return kept.current;
  });
}
