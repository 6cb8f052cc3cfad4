/** What a verdict stands on: numbers beside those of the peers, what happened then, and how it is judged. */
import type { TabProps } from '../components/later';
import { keptQuery, Link } from '../components/link';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { param } from '../lib/address';
import { zone } from '../lib/clock';
import { formatCount, formatValue } from '../lib/number';
import { formatFull, formatSecond } from '../lib/time';
import { quantity } from '../money/quantity';
import { type Culprit, type Verdict, verdictsOf } from './answers';
import { numberTitle, standsStill } from './words';

/** Ranks of a standstill that are listed here; the Ranks tab lists all. */
const CULPRITS_MAX = 20;
const EVENTS_MAX = 20;

/** How each class is judged. The numbers are those of the detector. */
const FORMULAS: Record<string, string> = {
  straggler:
    'own = step − wait; ρ = median of own over 20 steps ÷ median of the peers; z = that distance ÷ max(1.4826 × MAD, 0.5 % of the median). Warns from ρ 1.05, pages from ρ 1.10, both with z from 6, in 3 of 4 windows. Gain = 1 − (slowest of the others + least wait) ÷ step.',
  consistently_last:
    'The rank that waits least in at least 80 % of the steps arrives last; the others wait for it at least 1 % of a step longer.',
  node: 'At least 75 % of the ranks of one host stand out: it is one verdict about the host.',
  stage_imbalance: 'A whole pipeline stage works longer than the others: how the model is cut, not a card.',
  rotating: 'Another rank arrives last each step, and steps take longer: data or garbage collection.',
  communication: 'The least wait of all ranks has grown: the collective itself takes longer.',
  slowdown: 'A change point of the step time (CUSUM, drift 0.5 σ, limit 8 σ, σ at least 0.5 %).',
  hang: 'No step is completed for ten times the median step, at least 30 s and at most 120 s. Ranks that did not enter the collective that others wait in hold the job.',
  silent: 'A rank sends nothing any more while others go on.',
};

/** The panel of the verdict that the address names. */
export function EvidencePanel({ board }: TabProps) {
  const verdict = verdictsOf(board.health.value).find((v) => v.id === param('verdict'));
  return verdict ? <Evidence verdict={verdict} /> : null;
}

/** The tables of one verdict. */
export function Evidence({ verdict }: { verdict: Verdict }) {
  const { evidence, events, culprits, action, confidence } = verdict;
  const formula = FORMULAS[verdict.class];
  return (
    <div class="evidence">
      {evidence.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Evidence">
          <table>
            <thead>
              <tr>
                <th scope="col">What was seen</th>
                <th scope="col" class="number">
                  here
                </th>
                <th scope="col" class="number">
                  peers
                </th>
                <th scope="col">Ask again</th>
              </tr>
            </thead>
            <tbody>
              {evidence.map((row) => (
                <tr key={row.name + row.text}>
                  <td>
                    <Name text={row.text || numberTitle(row.name)} limit={160} />
                  </td>
                  <td class="number">
                    <b>{row.value === null ? '—' : quantity(row.value, row.unit)}</b>
                  </td>
                  <td class="number">{row.peers === null ? '—' : quantity(row.peers, row.unit)}</td>
                  <td>{row.metric ? <Ask query={row.metric} /> : <span class="quiet">—</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {standsStill(verdict) && culprits.length > 0 && (
        <CulpritTable culprits={culprits.slice(0, CULPRITS_MAX)} of={culprits.length} />
      )}
      <dl>
        {action && (
          <div>
            <dt>To do</dt>
            <dd>
              <Sentence text={action.sentence} />
            </dd>
          </div>
        )}
        {verdict.since !== null && (
          <div>
            <dt>{verdict.cleared === null ? 'Found' : 'Found and cleared'}</dt>
            <dd>
              {formatFull(verdict.since, zone.value)}
              {verdict.cleared !== null && ` to ${formatFull(verdict.cleared, zone.value)}`}
            </dd>
          </div>
        )}
        {confidence !== null && confidence !== undefined && (
          <div>
            <dt>Confidence</dt>
            <dd>{confidence.toFixed(2)}</dd>
          </div>
        )}
        {formula && (
          <div class="wide">
            <dt>How it is judged</dt>
            <dd>{formula}</dd>
          </div>
        )}
      </dl>
      {events.length > 0 && (
        <ul aria-label="Events around it">
          {events.slice(0, EVENTS_MAX).map((event) => (
            <li key={`${event.time} ${event.text}`}>
              <time title={formatFull(event.time, zone.value)}>{formatSecond(event.time, zone.value)}</time>{' '}
              <span class="quiet">
                <Name text={event.kind} limit={24} />
              </span>{' '}
              <Name text={event.text} limit={200} />
            </li>
          ))}
          {events.length > EVENTS_MAX && <li class="quiet">{events.length - EVENTS_MAX} more</li>}
        </ul>
      )}
    </div>
  );
}

function Ask({ query }: { query: string }) {
  const address = new URLSearchParams(keptQuery());
  address.set('q', query);
  return (
    <Link href={`/explore?${address}`}>
      <code>
        <Name text={query} limit={56} />
      </code>
    </Link>
  );
}

/** How far each rank came, the one that is furthest behind first. */
export function lowestFirst(culprits: Culprit[]): Culprit[] {
  const last = (n: number | null) => n ?? Number.NEGATIVE_INFINITY;
  return culprits.toSorted(
    (a, b) => last(a.sequence) - last(b.sequence) || last(a.last_step) - last(b.last_step) || a.rank - b.rank,
  );
}

/** Ranks of a job that stands still. */
export function CulpritTable(props: { culprits: Culprit[]; of: number; all?: boolean }) {
  const { culprits, of, all = true } = props;
  const rows = lowestFirst(culprits);
  const number = (value: number | null) => (value === null ? '—' : formatValue(value));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Last step and collective of each rank">
      <table class="culprits">
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col">Host</th>
            <th scope="col" class="number">
              Last step
            </th>
            <th scope="col">at</th>
            <th scope="col" class="number">
              Collective entered
            </th>
            <th scope="col" class="number">
              completed
            </th>
            <th scope="col">State</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((c) => (
            <tr key={c.rank}>
              <th scope="row">{c.rank}</th>
              <td>{c.host ? <Name text={c.host} limit={24} /> : '—'}</td>
              <td class="number">{number(c.last_step)}</td>
              <td>{c.last_step_time === null ? '—' : formatSecond(c.last_step_time, zone.value)}</td>
              <td class="number">{number(c.sequence)}</td>
              <td class="number">{number(c.completed)}</td>
              <td>
                <Name text={c.state} limit={48} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {of > rows.length && (
        <p class="quiet">
          {formatCount(of - rows.length)} more{all ? ': the Ranks tab has all.' : ', which came further.'}
        </p>
      )}
    </div>
  );
}
