/** A window that shows a query as a rule, ready to be copied. */
import { useState } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { RuleButtons } from '../components/rule_buttons';
import { Segments } from '../components/segments';
import { hasCondition, nameProblem, type RuleKind, ruleYaml, suggestedName } from './rule';

/** Fills in a rule for `query`. */
export function RuleDialog({ query, close }: { query: string; close: () => void }) {
  const compares = hasCondition(query);
  const [kind, setKind] = useState<RuleKind>(compares ? 'alert' : 'record');
  const [names, setNames] = useState({
    alert: suggestedName(query, 'alert'),
    record: suggestedName(query, 'record'),
  });
  const [pending, setPending] = useState('5m');
  const [severity, setSeverity] = useState('ticket');
  const [condition, setCondition] = useState('');
  const name = names[kind];
  const wrong =
    nameProblem(name, kind) ||
    (kind === 'alert' && pending !== '' && !/^(\d+(ms|[smhdwy]))+$/.test(pending)
      ? 'the time is a duration such as 5m'
      : '');
  const yaml = ruleYaml({ kind, query, name, pending, severity, condition: compares ? '' : condition });
  const file = `${name.replace(/[^\w-]+/g, '_')}.yml`;
  return (
    <Dialog title="Make a rule" close={close} class="rule">
      <Segments
        label="Kind of rule"
        value={kind}
        choose={setKind}
        choices={[
          { value: 'alert', content: 'Alert' },
          { value: 'record', content: 'Recorded series' },
        ]}
      />
      <div class="fields">
        <label>
          Name
          <input
            class="control"
            value={name}
            onInput={(e) => setNames({ ...names, [kind]: e.currentTarget.value })}
          />
        </label>
        {kind === 'alert' && !compares && (
          <label>
            Fires when
            <input
              class="control"
              value={condition}
              placeholder="> 0.5"
              onInput={(e) => setCondition(e.currentTarget.value)}
            />
          </label>
        )}
        {kind === 'alert' && (
          <label>
            For
            <input
              class="control"
              value={pending}
              onInput={(e) => setPending(e.currentTarget.value.trim())}
            />
          </label>
        )}
        {kind === 'alert' && (
          <label>
            Severity
            <select class="control" value={severity} onChange={(e) => setSeverity(e.currentTarget.value)}>
              {['info', 'ticket', 'page'].map((s) => (
                <option key={s}>{s}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      {wrong && (
        <p class="crit" role="alert">
          {wrong}
        </p>
      )}
      {kind === 'alert' && !compares && condition === '' && (
        <p class="quiet">Without a comparison it fires for every series that the query returns.</p>
      )}
      <pre tabIndex={0}>
        <code>{yaml}</code>
      </pre>
      <p class="quiet">
        Put it into a file of <code>--rule-files</code>; <code>truegauge rules check {file}</code> looks it
        over.
      </p>
      <RuleButtons yaml={yaml} file={file} disabled={wrong !== ''} label="Copy" />
    </Dialog>
  );
}
