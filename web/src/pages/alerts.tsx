/** Alerts: what is wrong now, and was the rule right? */
import { useEffect, useLayoutEffect, useMemo, useState } from 'preact/hooks';
import type { Rule } from '../alerts/answers';
import { SideIcon } from '../alerts/icons';
import { AlertList, Errors, SectionMark } from '../alerts/list';
import { Alerts, type AlertTab, TABS } from '../alerts/model';
import { RuleEditor } from '../alerts/rule_edit';
import { RulePanel } from '../alerts/rule_panel';
import { SilenceDialog } from '../alerts/silence';
import { Deliveries, History, Rules, Silences } from '../alerts/tables';
import { calmSentence, completions, SECTIONS, unknownKeys } from '../alerts/words';
import { Failure } from '../components/failure';
import { FilterBar } from '../components/filter_bar';
import { CritIcon, OkIcon } from '../components/icons';
import { Segments, Toggle } from '../components/segments';
import { RangeControl, shift, widen } from '../explore/range_control';
import { useFeed } from '../fleet/feed';
import { toggleLive } from '../fleet/range';
import { param, setParams } from '../lib/address';
import { now, switchZone } from '../lib/clock';
import { bind } from '../lib/keys';
import { formatBrief } from '../lib/number';
import { refusedText, who } from '../lib/session';
import { formatAge } from '../lib/time';
import { Remediation } from '../remediation/model';
import { RemediationSide } from '../remediation/side';
import '../styles/alerts.css';

/** Ages of the last evaluation at which one ought to look, seconds. */
const LATE = 180;
const VERY_LATE = 600;

/** The rule that is edited; `null` in it for a new one. */
type Edited = { rule: Rule | null } | null;

/** The page. */
export function AlertsPage() {
  const page = useMemo(() => new Alerts(), []);
  const remediation = useMemo(() => new Remediation(), []);
  const [edited, setEdited] = useState<Edited>(null);
  const [silencing, setSilencing] = useState(false);
  useFeed(page, 'Alerts', 'alerts');
  useKeys(page, { create: () => setEdited({ rule: null }), silence: () => setSilencing(true) });
  const beside = param('side') === 'remediation';
  const alert = page.alert.value;
  return (
    <main class="alerts">
      <Bar page={page} create={() => setEdited({ rule: null })} />
      <div class={beside ? 'split' : 'whole'}>
        <div class="main-side">
          <Body page={page} remediation={remediation} />
          <RulePanel page={page} edit={(rule) => setEdited({ rule })} silence={() => setSilencing(true)} />
          {page.tab.value === 'silenced' && <Silences page={page} />}
          <Deliveries page={page} />
        </div>
        {beside && <Side page={remediation} />}
      </div>
      {edited && <RuleEditor page={page} rule={edited.rule} close={() => setEdited(null)} />}
      {silencing && alert && <SilenceDialog page={page} alert={alert} close={() => setSilencing(false)} />}
    </main>
  );
}

function Side({ page }: { page: Remediation }) {
  useFeed(page, 'Alerts', 'remediation');
  return <RemediationSide page={page} />;
}

function Bar({ page, create }: { page: Alerts; create: () => void }) {
  const summary = page.summary.value;
  const live = page.range.live.value;
  const groups = summary?.groups ?? [];
  const { today, delivered } = summary?.deliveries ?? { today: null, delivered: null };
  const last = summary?.last_evaluation ?? null;
  const age = last === null ? null : Math.max(0, (now.value - last) / 1000);
  const late = age === null || age < LATE ? '' : age < VERY_LATE ? ' warn' : ' crit';
  const counts: Record<string, number | undefined> = {
    firing: summary?.firing,
    pending: summary?.pending,
    silenced: summary?.silenced,
  };
  return (
    <div class="page-bar">
      <h1>Alerts</h1>
      <Segments
        label="Which alerts"
        value={page.tab.value}
        choose={chooseTab}
        choices={TABS.map((tab) => {
          const section = SECTIONS.find((s) => s === tab);
          return {
            value: tab,
            content: section ? (
              <SectionMark section={section} count={counts[tab]} />
            ) : tab === 'rules' ? (
              `Rules ${summary?.rules ?? ''}`
            ) : (
              'History'
            ),
          };
        })}
      />
      <FilterBar
        value={page.filter.value}
        change={(f) => setParams({ f: f || null })}
        complete={(typed) => completions(typed, groups)}
        unknown={unknownKeys(page.filter.value, groups)}
      />
      <span class="right">
        {today !== null && today > 0 && (
          <span class={(delivered ?? 0) < today ? 'warning' : 'quiet'}>
            Delivered {delivered} of {today} today
          </span>
        )}
        <RangeControl explore={page.range} />
        <span class={`live${live ? late : ' paused'}`}>
          <Toggle on={live} set={toggleLive} title="Follows the clock (Space)">
            {live && <span class="dot" />} {live ? 'live' : 'paused'}
          </Toggle>
          {age !== null && `evaluated ${formatAge(age)} ago`}
        </span>
        <button
          type="button"
          class="control side-switch"
          aria-label="Remediation beside"
          aria-pressed={param('side') === 'remediation'}
          title="Remediation beside (b)"
          onClick={toggleSide}
        >
          <SideIcon />
        </button>
        <button type="button" class="primary" title="New rule (n)" onClick={create}>
          New rule
        </button>
      </span>
    </div>
  );
}

function Body({ page, remediation }: { page: Alerts; remediation: Remediation }) {
  const tab = page.tab.value;
  const summary = page.summary.value;
  if (tab === 'history')
    return (
      <section class="panel list" aria-label="History">
        <History page={page} />
      </section>
    );
  if (tab === 'rules')
    return (
      <section class="panel list" aria-label="Rules">
        <Rules page={page} />
      </section>
    );
  const rows = page.shown.value;
  const alerts = summary?.groups.reduce((sum, g) => sum + g.alerts.length, 0) ?? 0;
  return (
    <section class="panel list" aria-label="Alerts">
      {page.summaryError.value !== null && (
        <Failure error={page.summaryError.value} retry={() => void page.load()} />
      )}
      {summary && <Errors errors={summary.errors} />}
      <Storm page={page} remediation={remediation} />
      {rows.length > 0 ? (
        <AlertList page={page} />
      ) : summary === null ? (
        <div class="waits" />
      ) : alerts > 0 && page.filter.value !== '' ? (
        <p class="nothing">
          No alert is left by this filter.{' '}
          <button type="button" class="link" onClick={() => setParams({ f: null })}>
            Show all
          </button>
        </p>
      ) : tab === 'firing' ? (
        <p class="nothing calm">
          {summary.errors.length === 0 && <OkIcon />} {calmSentence(summary, now.value)}
        </p>
      ) : (
        <p class="nothing">Nothing is {tab}.</p>
      )}
    </section>
  );
}

/** Alerts of one cause at which the breakers are told of. */
const STORM = 20;

/** Many alerts of one cause: whether remediation still acts. */
function Storm({ page, remediation }: { page: Alerts; remediation: Remediation }) {
  const most = Math.max(0, ...page.shown.value.map((row) => row.alerts.length));
  const storms = most >= STORM;
  useEffect(() => {
    if (storms && remediation.answer.peek() === null) void remediation.load();
  }, [storms]);
  const pools = remediation.answer.value?.pools ?? [];
  if (!storms || pools.length === 0) return null;
  const open = pools.filter((p) => p.breaker === 'open');
  if (open.length === 0)
    return <p class="storm quiet">{most} alerts of one cause; the breakers of remediation are closed.</p>;
  const worst = Math.max(0, ...open.map((p) => p.newly_bad_ratio ?? 0));
  return (
    <p class="storm crit">
      <CritIcon /> {most} alerts of one cause: the breaker is open
      {worst > 0 && ` at ${formatBrief(Number((worst * 100).toPrecision(3)), '%')} newly bad`}, nothing is
      acted on by itself.
    </p>
  );
}

const chooseTab = (tab: AlertTab) => setParams({ tab: tab === 'firing' ? null : tab });
const toggleSide = () => setParams({ side: param('side') === 'remediation' ? null : 'remediation' });

function useKeys(page: Alerts, acts: { create: () => void; silence: () => void }): void {
  useLayoutEffect(() => {
    const group = 'Alerts';
    const move = (by: number) => () => {
      const rows = page.shown.peek();
      const at = rows.findIndex((r) => r.key === page.row.peek()?.key);
      const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
      if (!next) return false;
      page.select(next.alerts[0]);
      document.querySelector(`[data-alert="${CSS.escape(next.alerts[0].fingerprint)}"]`)?.scrollIntoView({
        block: 'nearest',
      });
      return true;
    };
    const tab = (by: number) => () => {
      const at = TABS.indexOf(page.tab.peek());
      chooseTab(TABS[(at + by + TABS.length) % TABS.length]);
    };
    const fold = () => {
      const row = page.row.peek();
      return row && row.alerts.length > 1 ? page.toggle(row.key) : false;
    };
    return bind(
      { keys: 'j', does: 'The row below', group, run: move(1) },
      { keys: 'k', does: 'The row above', group, run: move(-1) },
      { keys: 'Enter', does: 'Unfold the alerts of one cause', group, run: fold },
      { keys: ']', does: 'The next tab', group, run: tab(1) },
      { keys: '[', does: 'The tab before', group, run: tab(-1) },
      {
        keys: 's',
        does: 'Silence',
        group,
        run: () => (page.alert.peek() && refusedText(who.peek()) === '' ? acts.silence() : false),
      },
      { keys: 'n', does: 'New rule', group, run: acts.create },
      { keys: 'b', does: 'Remediation beside', group, run: toggleSide },
      { keys: '.', does: 'Half a range later', group, run: () => shift(page.range, 0.5) },
      { keys: ',', does: 'Half a range earlier', group, run: () => shift(page.range, -0.5) },
      { keys: '>', does: 'Half the range', group, run: () => widen(page.range, 0.5) },
      { keys: '<', does: 'Twice the range', group, run: () => widen(page.range, 2) },
      { keys: 'Space', does: 'Live or paused', group, run: toggleLive },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
    );
  }, [page]);
}
