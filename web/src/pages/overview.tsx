/** A run's facts: attributes, attempts, sessions, and what did not come through. */
import { useSignal } from '@preact/signals';
import { useRef, useState } from 'preact/hooks';
import type { Board } from '../charts/board';
import { rank } from '../charts/sections';
import { type CardActions, ChartCard } from '../components/chart_card';
import { EventLane } from '../components/event_lane';
import { Name } from '../components/name';
import { OutputPanel } from '../components/output_panel';
import { HealthPanel, Tiles } from '../health/overview';
import { now, zone } from '../lib/clock';
import { copy } from '../lib/download';
import { isFact } from '../lib/missing';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import { formatFull, formatSpan } from '../lib/time';
import { CapturePanel } from '../missing/capture_panel';
import { MoneyPanel } from '../money/panel';
import { leave, useAsking, useChartKeys } from './chart_keys';
import { Table } from './charts';

const ROWS_MAX = 1000;
/** Charts up to this rank tell of a loss. */
const LOSS_RANK = 2;
const LOSS_PX = 198;

/** What a refusal means and what to do about it. */
function CountTable({
  title,
  counts,
  none,
}: {
  title: string;
  counts: Record<string, number>;
  none: string;
}) {
  const rows = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  return (
    <section class="panel">
      <h2>{title}</h2>
      {rows.length === 0 ? (
        <p class="quiet">{none}</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Reason</th>
              <th scope="col" class="number">
                Points
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([reason, count]) => (
              <tr key={reason}>
                <td>
                  <Name text={reason} />
                </td>
                <td class="number">{formatCount(count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function attributeText(value: unknown): string {
  if (value === null) return 'null';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function Attributes({ attributes }: { attributes: Record<string, unknown> }) {
  const [filter, setFilter] = useState('');
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const facts = Object.entries(attributes).filter(([key]) => isFact(key));
  const rows = facts
    .filter(([key, value]) => words.every((w) => `${key} ${attributeText(value)}`.toLowerCase().includes(w)))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const all = facts.length;
  return (
    <section class="panel tall">
      <h2>
        Attributes <span class="quiet">{formatCount(all)}</span>
        <input
          class="control"
          type="search"
          aria-label="Filter attributes"
          placeholder="Filter attributes"
          value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)}
        />
      </h2>
      {all === 0 && (
        <p class="quiet">
          None: <code>tg.init(config=…)</code> and <code>tg.log_attributes</code> write them.
        </p>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Attributes">
        <table>
          <tbody>
            {rows.slice(0, ROWS_MAX).map(([key, value]) => (
              <tr key={key}>
                <th scope="row">
                  <Name text={key} limit={60} />
                </th>
                <td class="value">
                  <button
                    type="button"
                    class="link"
                    title="Copy"
                    onClick={() => copy(attributeText(value), visible(key))}
                  >
                    <Name text={attributeText(value)} limit={160} />
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {rows.length > ROWS_MAX && (
          <p class="quiet">{formatCount(rows.length - ROWS_MAX)} more: filter to see them.</p>
        )}
      </div>
    </section>
  );
}

/** What tells whether it learns, with what happened above it; nothing where nothing of the kind is logged. */
function Loss({ board }: { board: Board }) {
  const full = useSignal<string | null>(null);
  const table = useSignal<string | null>(null);
  const pointed = useRef<CardActions | null>(null);
  useAsking(board);
  useChartKeys(board, pointed, full);
  const best = board.charts.value.toSorted((a, b) => rank(a.name) - rank(b.name))[0];
  if (!best || rank(best.name) > LOSS_RANK) return null;
  return (
    <section class="loss" aria-label="How it learns" onPointerLeave={() => leave(board)}>
      <EventLane board={board} />
      <ChartCard
        board={board}
        chart={best}
        wide={false}
        height={LOSS_PX}
        full={full}
        setFull={(name) => (full.value = name)}
        openTable={(name) => (table.value = name)}
        point={(actions) => (pointed.current = actions)}
      />
      <Table board={board} name={table.value} close={() => (table.value = null)} />
    </section>
  );
}

const when = (time: number | null) => (time === null ? '—' : formatFull(time, zone.value));

/** The tab. */
export function OverviewTab({ board }: { board: Board }) {
  const detail = board.detail.value!;
  const metrics = board.metrics.value ?? [];
  return (
    <div class="overview">
      <Tiles board={board} />
      <Loss board={board} />
      <MoneyPanel money={board.health.value?.money ?? null} />
      <HealthPanel board={board} />
      <section class="panel">
        <h2>Run</h2>
        <table>
          <tbody>
            {[
              ['Run id', detail.run_id],
              ['Organization', detail.organization || '—'],
              ['Workspace', detail.workspace || '—'],
              ['Project', detail.project || '—'],
              ['Description', detail.description || '—'],
              ['State', [detail.state, detail.state_reason].filter(Boolean).join(': ')],
              ['Started', when(detail.started_ms)],
              ['Ended', when(detail.ended_ms)],
              ['Points', formatCount(detail.points)],
              [
                'Metrics',
                `${formatCount(new Set(metrics.map((m) => m.display)).size)} in ${formatCount(metrics.length)} series`,
              ],
              ['Live sessions', formatCount(detail.sessions_live)],
            ].map(([key, value]) => (
              <tr key={key}>
                <th scope="row">{key}</th>
                <td>
                  <Name text={value} limit={200} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <Attributes attributes={detail.attributes} />
      <OutputPanel attributes={detail.attributes} />
      <CapturePanel capture={board.missing.value?.capture ?? []} />
      <section class="panel">
        <h2>
          Attempts <span class="quiet">{formatCount(detail.attempts_list.length)}</span>
        </h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Attempts">
          <table>
            <thead>
              <tr>
                <th scope="col">Attempt</th>
                <th scope="col">Started</th>
                <th scope="col">Length</th>
                <th scope="col">Job</th>
                <th scope="col" class="number">
                  Restarts
                </th>
              </tr>
            </thead>
            <tbody>
              {detail.attempts_list.map((a) => (
                <tr key={a.number}>
                  <td>{a.number}</td>
                  <td>{when(a.started_ms)}</td>
                  <td>
                    {a.started_ms === null
                      ? '—'
                      : formatSpan(((a.ended_ms ?? now.value) - a.started_ms) / 1000)}
                  </td>
                  <td>
                    <Name text={a.job_token || '—'} limit={32} />
                  </td>
                  <td class="number">{a.restart_count}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
      <section class="panel">
        <h2>
          Sessions <span class="quiet">{formatCount(detail.sessions.length)}</span>
        </h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Sessions">
          <table>
            <thead>
              <tr>
                <th scope="col">Host</th>
                <th scope="col" class="number">
                  Process
                </th>
                <th scope="col" class="number">
                  Rank
                </th>
                <th scope="col" class="number">
                  Attempt
                </th>
                <th scope="col">Last heartbeat</th>
                <th scope="col">End</th>
              </tr>
            </thead>
            <tbody>
              {detail.sessions.slice(0, ROWS_MAX).map((s, at) => (
                <tr key={`${s.host} ${s.pid} ${at}`}>
                  <td>
                    <Name text={s.host} limit={32} />
                  </td>
                  <td class="number">{s.pid}</td>
                  <td class="number">{s.rank ?? '—'}</td>
                  <td class="number">{s.attempt}</td>
                  <td>{when(s.heartbeat_ms)}</td>
                  <td>
                    <Name text={s.end ?? 'open'} limit={32} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
      <CountTable
        title="Dropped before they came here"
        counts={detail.dropped}
        none="Nothing was dropped by a writer."
      />
      <CountTable title="Refused by this server" counts={detail.refused} none="Nothing was refused." />
    </div>
  );
}
