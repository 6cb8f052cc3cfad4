/** A rule that is written or changed, with what it would have done beside its text. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { RuleButtons } from '../components/rule_buttons';
import { hasCondition, nameProblem } from '../explore/rule';
import { formatDuration, parseDuration } from '../explore/span';
import { ApiError, errorLine, isAbort } from '../lib/api';
import { shown } from '../lib/text';
import { askBacktest, type Backtest, type Rule } from './answers';
import { BacktestChart, backtestText } from './backtest';
import { type Alerts, testedRange } from './model';
import { RuleSave } from './rule_save';
import { alertYaml } from './rule_text';

/** Typing pauses this long before what is typed is tried. */
const PAUSE_MS = 600;

interface TriedText {
  from: number;
  to: number;
  seconds: number;
  answer: Backtest;
}

/** How long the condition holds before it fires; empty for not at all. */
function heldOf(rule: Rule | null): string {
  if (!rule) return '5m';
  return rule.duration ? formatDuration(rule.duration * 1000) : '';
}

/** The window; without a rule it begins with nothing. */
export function RuleEditor({ page, rule, close }: { page: Alerts; rule: Rule | null; close: () => void }) {
  const [name, setName] = useState(rule?.name ?? '');
  const [query, setQuery] = useState(rule?.query.trim() ?? '');
  const [pending, setPending] = useState(heldOf(rule));
  const [severity, setSeverity] = useState(rule?.labels?.severity ?? 'ticket');
  const heldMs = pending === '' ? 0 : parseDuration(pending);
  const wrong =
    nameProblem(name, 'alert') ||
    (query.trim() === '' ? 'a rule needs an expression' : '') ||
    (heldMs === null ? 'the time is a duration such as 5m' : '') ||
    (hasCondition(query) ? '' : 'without a comparison it fires for every series that the expression gives');
  const yaml = alertYaml({
    group: rule?.group ?? 'alerts',
    name,
    expr: query.trim(),
    held: pending,
    kept: rule?.keepFiringFor ? formatDuration(rule.keepFiringFor * 1000) : '',
    labels: { ...rule?.labels, severity },
    annotations: rule?.annotations ?? { summary: `${name}: {{ $value }}` },
  });
  const file = `${name.replace(/[^\w-]+/g, '_') || 'rule'}.yml`;
  const { tried, error } = useTried(query.trim(), (heldMs ?? 0) / 1000);
  // What the server would not have as a rule, such as one over a signal that misleads, is not handed out.
  const refused = error instanceof ApiError && error.status === 400;
  const unfit = nameProblem(name, 'alert') !== '' || query.trim() === '' || refused;
  return (
    <Dialog title={rule ? `Edit ${shown(rule.name, 40)}` : 'New rule'} close={close} class="rule-editor">
      <div class="halves">
        <div>
          <label>
            Name
            <input class="control" required value={name} onInput={(e) => setName(e.currentTarget.value)} />
          </label>
          <label>
            Expression
            <textarea
              rows={8}
              spellcheck={false}
              value={query}
              onInput={(e) => setQuery(e.currentTarget.value)}
            />
          </label>
          <div class="fields">
            <label>
              For
              <input
                class="control"
                value={pending}
                onInput={(e) => setPending(e.currentTarget.value.trim())}
              />
            </label>
            <label>
              Severity
              <select class="control" value={severity} onChange={(e) => setSeverity(e.currentTarget.value)}>
                {['info', 'ticket', 'page'].map((s) => (
                  <option key={s}>{s}</option>
                ))}
              </select>
            </label>
          </div>
          {wrong && <p class="warning">{wrong}</p>}
        </div>
        <div aria-live="polite">
          <h3>Back-test, stored data of 1 day</h3>
          {error !== null && (
            <p class="crit" role="alert">
              {errorLine(error)}
            </p>
          )}
          {tried ? (
            <>
              <p class="quiet">{backtestText(tried.answer)}</p>
              <BacktestChart {...tried} />
            </>
          ) : (
            error === null && <div class="backtest waits" />
          )}
        </div>
      </div>
      <pre tabIndex={0}>
        <code>{yaml}</code>
      </pre>
      <p class="quiet">
        To have a change reviewed, put the text into a file of <code>rule_files</code>;{' '}
        <code>truegauge rules test</code> runs its tests, and <code>kill -HUP</code> or{' '}
        <code>POST /-/reload</code> puts it in force.
      </p>
      <RuleSave page={page} rule={rule} name={name} yaml={yaml} disabled={unfit} close={close} />
      <RuleButtons yaml={yaml} file={file} disabled={unfit} label="Copy as YAML" />
    </Dialog>
  );
}

/** What an expression would have done; asked once typing pauses. */
function useTried(expr: string, seconds: number): { tried: TriedText | null; error: unknown } {
  const [state, setState] = useState<{ tried: TriedText | null; error: unknown }>({
    tried: null,
    error: null,
  });
  const first = useRef(true);
  useEffect(() => {
    if (expr === '') return;
    const controller = new AbortController();
    const timer = setTimeout(
      () => {
        const range = testedRange('1d');
        askBacktest(
          { expr, for_seconds: seconds },
          range.from,
          range.to,
          range.seconds,
          controller.signal,
        ).then(
          (answer) => setState({ tried: { ...range, answer }, error: null }),
          (error: unknown) => {
            if (!isAbort(error)) setState({ tried: null, error });
          },
        );
      },
      first.current ? 0 : PAUSE_MS,
    );
    first.current = false;
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [expr, seconds]);
  return state;
}
