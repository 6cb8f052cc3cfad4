/** What is wrong with a run, on each of its tabs: the two worst verdicts, and how many more there are. */
import type { Board } from '../charts/board';
import { CritIcon, InfoIcon, WarnIcon } from '../components/icons';
import { LaterTab } from '../components/later';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { param, params, setParams } from '../lib/address';
import { errorLine } from '../lib/api';
import { runPath, type Scope, type Tab } from '../lib/route';
import type { Level, Verdict } from './answers';
import { inView, namesRanks, ordered, standingText, standsStill } from './words';

/** Strips that are shown at once. */
const STRIPS_MAX = 2;

const evidence = () => import('./evidence').then((m) => m.EvidencePanel);

/** The shape of a level. */
export function LevelIcon({ level }: { level: Level }) {
  if (level === 'page') return <CritIcon />;
  return level === 'warn' ? <WarnIcon /> : <InfoIcon />;
}

/** The strips; nothing where nothing is wrong. */
export function HealthStrip({ board, scope, tab }: { board: Board; scope: Scope; tab: Tab }) {
  const known = board.health.value?.verdicts ?? [];
  // The Ranks tab has a card for the one that it is about.
  const carded = tab === 'ranks' ? inView(known) : null;
  const verdicts = ordered(known).filter((v) => v !== carded);
  const all = param('verdicts') === 'all';
  const most = carded ? STRIPS_MAX - 1 : STRIPS_MAX;
  const shown = all ? verdicts : verdicts.slice(0, most);
  const more = verdicts.length - most;
  if (board.healthError.value !== null && board.health.value === null)
    return (
      <p class="health quiet" role="alert">
        Health is not known: {errorLine(board.healthError.value)}.{' '}
        <button type="button" class="link" onClick={() => void board.readHealth()}>
          Try again
        </button>
      </p>
    );
  return (
    <section class="health" aria-label="Health">
      {shown.map((verdict) => (
        <Strip key={verdict.id} board={board} verdict={verdict} scope={scope} tab={tab} />
      ))}
      {more > 0 && (
        <button
          type="button"
          class="link"
          aria-expanded={all}
          onClick={() => setParams({ verdicts: all ? null : 'all' })}
        >
          {all ? 'the worst only' : `and ${more} more`}
        </button>
      )}
    </section>
  );
}

function Strip(props: { board: Board; verdict: Verdict; scope: Scope; tab: Tab }) {
  const { board, verdict, scope, tab } = props;
  const open = param('verdict') === verdict.id;
  return (
    <div class={`strip ${verdict.level}`}>
      <div class="line">
        <LevelIcon level={verdict.level} />
        <p>
          <b role="status">
            <Name text={verdict.claim.replace(/\.?$/, '.')} limit={160} />
          </b>{' '}
          <Sentence text={verdict.sentence} />
        </p>
        <span class="right">
          <span class="standing">{standingText(verdict)}</span>
          <button
            type="button"
            class="control"
            aria-expanded={open}
            onClick={() => setParams({ verdict: open ? null : verdict.id })}
          >
            Evidence
          </button>
          {tab !== 'ranks' && (namesRanks(verdict) || standsStill(verdict)) && (
            <Link class="control" href={ranksPath(scope, board.runId, verdict)}>
              Open ranks
            </Link>
          )}
        </span>
      </div>
      {open && <LaterTab tab={evidence} board={board} />}
    </div>
  );
}

/** The Ranks tab with the rank selected, as the page is looked at now. */
function ranksPath(scope: Scope, runId: string, { ranks }: Verdict): string {
  const query = new URLSearchParams(params.value);
  if (ranks.length > 0) query.set('rank', String(ranks[0]));
  query.delete('verdict');
  return `${runPath(scope, runId, 'ranks')}?${query}`;
}
