/** Which step, which ranks, which spans. */
import { useSignal } from '@preact/signals';
import { LabelledSegments } from '../components/segments';
import { param, setParams } from '../lib/address';
import { formatCount } from '../lib/number';
import { shown } from '../lib/text';
import type { Timeline } from './model';

/** Hosts that the field of ranks suggests. */
const HOSTS_MAX = 200;

/** A field and what it does. */
interface FieldProps {
  id: string;
  /** Its name where no label is its. */
  label?: string;
  value: string;
  enter: (text: string) => void;
  placeholder: string;
  size: number;
  title?: string;
  list?: string;
  /** Where it is told what is wrong with the value. */
  wrongAt?: string;
}

/** The toolbar. */
export function TimelineToolbar({ model }: { model: Timeline }) {
  const answer = model.loaded.value?.answer;
  return (
    <div class="toolbar">
      <StepPicker model={model} />
      <RankPicker model={model} />
      <GroupPicker model={model} />
      <Find model={model} />
      <LabelledSegments
        label="Rows"
        choices={[
          {
            value: 'flat',
            content: 'one',
            title: 'One row for each process, what is within over what is around',
          },
          {
            value: 'nested',
            content: 'nested',
            title: 'A row for each depth; a click on a name switches one process',
          },
        ]}
        value={model.open.value ? 'nested' : 'flat'}
        choose={(rows) => setParams({ nest: rows === 'nested' ? '1' : '0', open: null })}
      />
      {model.slow.value && (
        <LabelledSegments
          label="Order"
          choices={[
            { value: 'slow', content: 'slow first', title: 'The process that works longest, then by rank' },
            { value: 'rank', content: 'rank' },
          ]}
          value={param('order') === 'rank' ? 'rank' : 'slow'}
          choose={(order) => setParams({ order: order === 'rank' ? 'rank' : null })}
        />
      )}
      <span class="right quiet" role="status">
        {answer &&
          `${formatCount(answer.spans.lane.length)} ${answer.spans.lane.length === 1 ? 'span' : 'spans'}`}
        {answer && answer.left_out > 0 && (
          <span class="badge warn">{formatCount(answer.left_out)} shorter ones left out</span>
        )}
        <button
          type="button"
          class="plain"
          disabled={model.isHome.value}
          title="Show all of it (0)"
          onClick={() => model.show(model.home.peek())}
        >
          <kbd>0</kbd> all
        </button>
      </span>
    </div>
  );
}

/** A field that acts once it is left or entered; what comes meanwhile takes away nothing that is typed. */
function Field({ id, label, value, enter, placeholder, size, title, list, wrongAt }: FieldProps) {
  const typed = useSignal<string | null>(null);
  return (
    <input
      id={id}
      class="control"
      aria-label={label}
      aria-invalid={wrongAt !== undefined}
      aria-describedby={wrongAt}
      placeholder={placeholder}
      size={size}
      title={title}
      list={list}
      value={typed.value ?? value}
      onInput={(e) => {
        typed.value = e.currentTarget.value;
      }}
      onChange={(e) => {
        const text = e.currentTarget.value;
        typed.value = null;
        enter(text);
      }}
    />
  );
}

function StepPicker({ model }: { model: Timeline }) {
  const answer = model.loaded.value?.answer;
  const whole = model.whole.value;
  const step = whole ? null : (model.step.value ?? answer?.step ?? null);
  const steps = answer?.steps ?? null;
  const choose = (text: string) => {
    const digits = text.replace(/[\s,]/g, '');
    if (/^\d{1,15}$/.test(digits)) model.openStep(Number(digits));
    else if (text.trim() === '') model.openStep('newest');
  };
  return (
    <span class="labelled step">
      <span class="label" aria-hidden="true">
        Step
      </span>
      <button
        type="button"
        class="plain"
        aria-label="Step before"
        title="Step before (,)"
        disabled={step === null || !steps || step <= steps.first}
        onClick={() => model.turn(-1)}
      >
        ‹
      </button>
      <Field
        id="timeline-step"
        label="Step"
        size={7}
        placeholder={whole ? 'all' : 'newest'}
        value={step === null ? '' : formatCount(step)}
        enter={choose}
      />
      <button
        type="button"
        class="plain"
        aria-label="Step after"
        title="Step after (.)"
        disabled={step === null || !steps || step >= steps.last}
        onClick={() => model.turn(1)}
      >
        ›
      </button>
      <button
        type="button"
        class="control"
        aria-pressed={whole}
        title="Spans of the whole run, those of no step among them"
        onClick={() => model.openStep(whole ? 'newest' : 'whole')}
      >
        whole run
      </button>
    </span>
  );
}

function RankPicker({ model }: { model: Timeline }) {
  const hosts = [...new Set(model.hosts.value.values())].filter(Boolean).sort();
  const { wrong } = model.choice.value;
  return (
    <span class="labelled">
      <label class="label" for="timeline-ranks">
        Ranks
      </label>
      <Field
        id="timeline-ranks"
        list="timeline-hosts"
        size={10}
        placeholder="all"
        title="Such as 0-7,12, or @ and a host"
        wrongAt={wrong ? 'timeline-ranks-wrong' : undefined}
        value={param('ranks')}
        enter={(text) => setParams({ ranks: text.trim(), t0: null, t1: null })}
      />
      <datalist id="timeline-hosts">
        {hosts.slice(0, HOSTS_MAX).map((host) => (
          <option key={host} value={`@${host}`} />
        ))}
      </datalist>
      {wrong && (
        <span id="timeline-ranks-wrong" class="warning">
          {wrong}: all are shown
        </span>
      )}
    </span>
  );
}

function GroupPicker({ model }: { model: Timeline }) {
  const groups = model.loaded.value?.answer.groups ?? [];
  const known = [...new Set(groups.map((group) => group ?? '-'))].sort();
  const chosen = param('group');
  if (known.length < 2 && chosen === '') return null;
  return (
    <span class="labelled">
      <label class="label" for="timeline-group">
        Group
      </label>
      <select
        id="timeline-group"
        class="control"
        value={chosen}
        onChange={(e) => setParams({ group: e.currentTarget.value })}
      >
        <option value="">all</option>
        {[...new Set([...known, ...(chosen ? [chosen] : [])])].map((group) => (
          <option key={group} value={group}>
            {group === '-' ? 'of no group' : shown(group, 30)}
          </option>
        ))}
      </select>
    </span>
  );
}

function Find({ model }: { model: Timeline }) {
  const lit = model.lit.value;
  const count = lit ? lit.reduce((sum, one) => sum + one, 0) : 0;
  const go = (forward: boolean) => {
    const next = model.nextOfKind(forward);
    if (next < 0) return;
    model.choose(next);
    model.reveal(next);
  };
  return (
    <span class="labelled">
      <input
        type="search"
        class="find"
        aria-label="Find spans by name"
        placeholder="find span  /"
        value={param('find')}
        onInput={(e) => setParams({ find: e.currentTarget.value })}
        onKeyDown={(e) => e.key === 'Enter' && go(!e.shiftKey)}
      />
      {param('find') !== '' && (
        <span class="quiet" role="status">
          {count === 0 ? 'none' : formatCount(count)}
        </span>
      )}
    </span>
  );
}
