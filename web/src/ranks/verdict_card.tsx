/** What the server concluded of the ranks: a claim, six numbers, what is to be won, and where to act. */
import type { ComponentChildren } from 'preact';
import type { Board } from '../charts/board';
import { keptQuery, Link } from '../components/link';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import type { Evidence, Verdict } from '../health/answers';
import { Evidence as EvidenceTables } from '../health/evidence';
import { LevelIcon } from '../health/strip';
import { actionWords, numberTitle, standingText } from '../health/words';
import { param, setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { gpuPath } from '../lib/route';
import { formatWhen } from '../lib/time';
import { figureOf } from '../money/panel';
import { formatUsd, percent, quantity } from '../money/quantity';
import { Mute } from './mute';

const NUMBERS = 6;
/** Evidence that the first three numbers say already. */
const TOLD = /own|wait|^rho$|^z$/i;

/** Causes as a claim ends with them. */
const CAUSES: Record<string, string> = {
  thermal: 'thermal',
  power_cap: 'power cap',
  clock: 'clock low',
  link: 'link',
  memory_health: 'memory health',
  host_data: 'host or data',
  unknown: 'cause unknown',
};

/** A claim with its cause: `Rank 17 is slow: thermal`. */
export function claimText({ claim, cause }: Verdict): string {
  const short = claim.replace(/\.$/, '');
  const why = cause ? (CAUSES[cause] ?? cause.replace(/_/g, ' ')) : '';
  return why && !short.toLowerCase().includes(why) ? `${short}: ${why}` : short;
}

/** A number of the card, beside that of the peers or its threshold. */
interface Row {
  text: string;
  value: string;
  beside: string;
  out: boolean;
}

function evidenceRow({ name, value, peers, unit }: Evidence): Row[] {
  if (value === null) return [];
  return [
    {
      text: numberTitle(name),
      value: quantity(value, unit),
      beside: peers === null ? '' : `peers ${quantity(peers, unit)}`,
      out: peers !== null,
    },
  ];
}

/** The six numbers: distance first, then what the cards and hosts say. */
export function numbersOf(verdict: Verdict): Row[] {
  const { rho, z, wait_seconds: wait, peers_wait_seconds: peers, evidence } = verdict;
  const rows: Row[] = [];
  if (rho !== null)
    rows.push({
      text: 'Own step time ÷ peers, ρ',
      value: rho.toFixed(4),
      beside: 'page at 1.10',
      out: rho >= 1.05,
    });
  if (z !== null) rows.push({ text: 'Distance, z', value: z.toFixed(1), beside: 'page at 6', out: false });
  if (wait !== null)
    rows.push({
      text: 'Waited in collectives',
      value: `${wait.toFixed(3)} s`,
      beside: peers === null ? '' : `peers ${peers.toFixed(3)} s`,
      out: peers !== null && wait < peers,
    });
  const told = rows.length > 0;
  return [...rows, ...evidence.filter((e) => !told || !TOLD.test(e.name)).flatMap(evidenceRow)].slice(
    0,
    NUMBERS,
  );
}

/** What is to be won, in money where the price is known. */
function Gain({ verdict, perHour }: { verdict: Verdict; perHour: number | null }) {
  const { gain_ratio: gain } = verdict;
  if (gain === null) return null;
  return (
    <>
      {' '}
      Fixing it returns <b>{percent(gain)}</b> of step time
      {perHour !== null && (
        <>
          , about <b>{formatUsd(gain * perHour)} / h</b>
        </>
      )}
      .
    </>
  );
}

function Where({ verdict }: { verdict: Verdict }) {
  const { host, gpu, stage, onset } = verdict;
  const words: ComponentChildren[] = [];
  if (host) words.push(<Name text={host} limit={32} />);
  if (gpu !== null) words.push(<>GPU {<Name text={gpu} limit={12} />}</>);
  if (stage !== null) words.push(`pipeline stage ${stage}`);
  const step = onset?.step ?? null;
  const time = onset?.time ?? null;
  const since = [
    step === null ? '' : `since step ${formatCount(step)}`,
    time === null
      ? ''
      : step === null
        ? `since ${formatWhen(time, now.value, zone.value)}`
        : `(${formatWhen(time, now.value, zone.value)})`,
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <>
      {words.map((word, at) => (
        <span key={at}>
          {at > 0 && ' · '}
          {word}
        </span>
      ))}
      {since && `${words.length > 0 ? ', ' : ''}${since}`}
      {(words.length > 0 || since) && '.'}
    </>
  );
}

/** The card. */
export function VerdictCard({ board, verdict }: { board: Board; verdict: Verdict }) {
  const money = board.health.value?.money;
  const open = param('verdict') === verdict.id;
  const perHour = money ? (figureOf(money, 'usd_per_hour')?.value ?? null) : null;
  const { level, host, gpu, uuid, action } = verdict;
  const numbers = numbersOf(verdict);
  const words = actionWords(verdict);
  const culprit = host !== null && verdict.ranks.length > 0;
  return (
    <section class={`panel verdict-card ${level}`} aria-label="Verdict">
      <header>
        <span class={`level ${level}`}>
          <LevelIcon level={level} />
        </span>
        <h2>
          <Name text={claimText(verdict)} limit={120} />
        </h2>
        <button
          type="button"
          class="link right"
          aria-expanded={open}
          title={standingText(verdict)}
          onClick={() => setParams({ verdict: open ? null : verdict.id })}
        >
          Evidence
        </button>
        <span class={`badge ${level}`}>{level}</span>
      </header>
      <p>
        <Where verdict={verdict} />
        <Gain verdict={verdict} perHour={perHour} />
      </p>
      {numbers.length === 0 && (
        <p>
          <Sentence text={verdict.sentence} />
        </p>
      )}
      <dl>
        {numbers.map((row) => (
          <div key={row.text}>
            <dt>
              <Name text={row.text} limit={60} />
            </dt>
            <dd>
              <b class={row.out ? 'out' : ''}>{row.value}</b> <span class="quiet">{row.beside}</span>
            </dd>
          </div>
        ))}
      </dl>
      {!culprit && action && (
        <p>
          <Sentence text={action.sentence} />
        </p>
      )}
      <footer>
        {culprit && words.includes('drain') && (
          <Link
            class="primary"
            href={remediationPath(verdict)}
            title="What would be done is shown first; nothing is done yet"
          >
            Propose drain of <Name text={host} limit={24} />
          </Link>
        )}
        {culprit && gpu !== null && (
          <Link class="control" href={gpuPath(host, gpu, uuid ?? '')}>
            GPU page
          </Link>
        )}
        <Mute runId={board.runId} verdict={verdict} />
        {culprit && action && !words.includes('drain') && (
          <span class="quiet">
            <Sentence text={action.sentence} />
          </span>
        )}
      </footer>
      {open && <EvidenceTables verdict={verdict} />}
    </section>
  );
}

/** The Remediation page with what is asked for filled in. */
function remediationPath({ host, uuid, id }: Verdict): string {
  const query = new URLSearchParams(keptQuery());
  query.set('host', host ?? '');
  if (uuid) query.set('uuid', uuid);
  query.set('verdict', id);
  return `/remediation?${query}`;
}
