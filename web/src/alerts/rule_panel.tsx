/** The chosen rule: its tests, its text, and what it would have done on what is stored. */
import { Failure } from '../components/failure';
import { Guarded } from '../components/guarded';
import { CritIcon, OkIcon, WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { Segments } from '../components/segments';
import { wordsOf } from '../explore/words';
import { counted } from '../fleet/names';
import { setParams } from '../lib/address';
import { visible } from '../lib/text';
import { formatSpan } from '../lib/time';
import type { Rule, RuleDetail } from './answers';
import { BacktestChart, BacktestTable, backtestText } from './backtest';
import { AlertFacts } from './facts';
import { type Alerts, isUnknownHere, TESTED } from './model';
import { testedOf } from './words';

/** Where a rule's runbook is; only such a place is linked as a page shows. */
export function runbookOf(rule: Rule | null, detail: RuleDetail | null): string {
  const url = detail?.runbook || rule?.annotations?.runbook_url || '';
  return /^(https?:\/\/|\/(?!\/))/.test(url) ? url : '';
}

const short = (seconds: number) => formatSpan(seconds).replace(/ 00 min$/, '');

/** An expression, in the colours of its words. */
export function Expression({ text }: { text: string }) {
  return (
    <pre class="expression" tabIndex={0}>
      <code>
        {wordsOf(text).map(({ kind, text: word, from }) => (
          <span key={from} class={`w-${kind}`}>
            {kind === 'space' ? word : visible(word)}
          </span>
        ))}
      </code>
    </pre>
  );
}

/** The panel. */
export function RulePanel({
  page,
  edit,
  silence,
}: {
  page: Alerts;
  edit: (rule: Rule) => void;
  silence: () => void;
}) {
  const name = page.ruleName.value;
  const rule = page.rule.value;
  if (name === '') return null;
  const known = page.detail.value;
  const detail = known?.rule === name ? known.answer : null;
  const runbook = runbookOf(rule, detail);
  const alert = page.alert.value;
  return (
    <section class="panel rule-panel" aria-label="The chosen rule">
      <header>
        <h2>
          <Name text={name} limit={48} />
        </h2>
        <Tests detail={detail} asked={known?.rule === name} />
        {rule?.type === 'alerting' && (
          <span class="badge">
            {rule.duration ? `for ${short(rule.duration)}` : 'at once'}
            {rule.keepFiringFor ? ` · keep ${short(rule.keepFiringFor)}` : ''}
          </span>
        )}
        {rule && (
          <span class="badge">
            <Name text={rule.file} limit={40} />
          </span>
        )}
        <span class="right">
          {runbook && (
            <a href={runbook} target="_blank" rel="noreferrer">
              Runbook
            </a>
          )}
          {rule && (
            <button type="button" class="link" onClick={() => edit(rule)}>
              Edit
            </button>
          )}
          {alert?.rule === name && (
            <Guarded class="link" title="Silence (s)" act={silence}>
              Silence
            </Guarded>
          )}
        </span>
      </header>
      {rule ? (
        <Expression text={rule.query} />
      ) : (
        page.rulesError.value === null &&
        page.rules.value.length > 0 && (
          <p class="quiet">No rule of this name is in force: its file was changed or taken out.</p>
        )
      )}
      {rule?.lastError && (
        <p class="crit">
          <CritIcon /> can’t be evaluated: <Name text={rule.lastError} limit={300} />
        </p>
      )}
      <Failures detail={detail} />
      {alert?.rule === name && <AlertFacts page={page} alert={alert} />}
      {rule && <Tested page={page} />}
    </section>
  );
}

function Tests({ detail, asked }: { detail: RuleDetail | null; asked: boolean }) {
  const tested = testedOf(detail);
  if (!asked) return null;
  if (tested === null)
    return (
      <span class="badge" title={detail?.tests_reason ?? undefined}>
        no tests
      </span>
    );
  return tested.failed > 0 ? (
    <span class="badge crit">
      <CritIcon /> {tested.failed} of {counted(tested.passed + tested.failed, 'test')} fail
    </span>
  ) : (
    <span class="badge ok">
      <OkIcon /> {tested.passed === 1 ? '1 test passes' : `${tested.passed} tests pass`}
    </span>
  );
}

function Failures({ detail }: { detail: RuleDetail | null }) {
  const tested = testedOf(detail);
  if (!tested || tested.failures.length === 0) return null;
  return (
    <ul class="failures">
      {tested.failures.slice(0, 3).map((text) => (
        <li key={text}>
          <Name text={text} limit={240} />
        </li>
      ))}
    </ul>
  );
}

/** The back-test of a rule in force. */
function Tested({ page }: { page: Alerts }) {
  const tried = page.tried.value;
  const error = page.triedError.value;
  const name = page.ruleName.value;
  const mine = tried?.rule === name ? tried : null;
  return (
    <div class="tested">
      <header>
        <h3>
          Back-test, stored data of <span class="unseen">{page.tests.value}</span>
        </h3>
        <Segments
          label="How far back"
          value={page.tests.value}
          choose={(test) => setParams({ test: test === TESTED[0] ? null : test })}
          choices={TESTED.map((t) => ({
            value: t,
            content: t === '1d' ? '1 day' : `${t.slice(0, -1)} days`,
          }))}
        />
        {mine && (
          <span class="quiet" role="status">
            {backtestText(mine.answer)}, looked at every {short(mine.answer.step_seconds)}
          </span>
        )}
      </header>
      {mine ? (
        <>
          <BacktestChart {...mine} />
          <BacktestTable answer={mine.answer} />
        </>
      ) : error === null ? (
        <div class="backtest waits" />
      ) : isUnknownHere(error) ? (
        <p class="quiet">
          <WarnIcon /> This server can’t try this rule on what is stored.
        </p>
      ) : (
        <Failure error={error} retry={() => void page.loadRule(name, true)} />
      )}
    </div>
  );
}
