/** The inputs of a calculator: by hand, from an example, from a run or from an engine. */
import { useEffect, useMemo, useState } from 'preact/hooks';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import type { Model } from '../inference/answers';
import { modelName } from '../inference/words';
import { param, setParams } from '../lib/address';
import type { RunRow } from '../lib/answers';
import { isAbort } from '../lib/api';
import { shown } from '../lib/text';
import { tellError } from '../lib/toast';
import type { Input } from './answers';
import { askModels, askRuns, fillFromModel, fillFromRun, measuredOf } from './fill';
import type { Calc } from './model';
import { exampleLine, formOrder, titleOf, usualInputs } from './words';

/** Calculators of what engines do, and of what runs do. */
const OF_ENGINES = ['roofline', 'economics', 'capacity', 'stream', 'goodput'];
const OF_RUNS = ['mfu', 'ettr', 'economics', 'goodput'];

/** The form. */
export function CalcForm({ calc }: { calc: Calc }) {
  const tool = calc.tool.value!;
  const wrong = calc.fieldErrors.value;
  // What an address gives is seen at once; what is typed below stays where it is.
  const given = useMemo(() => calc.given.peek(), [tool]);
  const usual = usualInputs(tool);
  const isFirst = ({ name }: Input) => usual.has(name) || name in given || name in calc.files.value;
  const inputs = formOrder(tool.inputs);
  const [first, more] = [inputs.filter(isFirst), inputs.filter((input) => !isFirst(input))];
  return (
    <section class="panel form" aria-label="Inputs">
      <p class="quiet">{tool.about}.</p>
      <Source calc={calc} />
      {first.map((input) => (
        <Field key={`${tool.name} ${input.name}`} calc={calc} input={input} />
      ))}
      {more.length > 0 && (
        <details open={more.some(({ name }) => wrong[name] !== undefined)}>
          <summary>More inputs</summary>
          {more.map((input) => (
            <Field key={`${tool.name} ${input.name}`} calc={calc} input={input} />
          ))}
        </details>
      )}
    </section>
  );
}

/** Where values may come from. */
function Source({ calc }: { calc: Calc }) {
  const tool = calc.tool.value!;
  const [runs, setRuns] = useState<RunRow[]>([]);
  const [models, setModels] = useState<Model[]>([]);
  const byRun = OF_RUNS.includes(tool.name);
  const byEngine = OF_ENGINES.includes(tool.name);
  const names = tool.inputs.map((i) => i.name);
  useEffect(() => {
    const controller = new AbortController();
    const quiet = (error: unknown) => {
      if (!isAbort(error)) tellError('cannot list what inputs may come from', error);
    };
    if (byRun) askRuns(controller.signal).then(setRuns, quiet);
    if (byEngine) askModels(Date.now(), controller.signal).then(setModels, quiet);
    return () => controller.abort();
  }, [byRun, byEngine]);
  const engine = param('engine', '\0');
  const known = models.find((m) => m.model === engine);
  // Reload, back and a link from Inference give the same picture: what was measured is read anew.
  useEffect(() => {
    calc.measured.value = known && tool.name === 'roofline' ? measuredOf(known, Date.now()) : null;
    if (known && Object.keys(calc.given.peek()).length === 0) calc.fill(fillFromModel(known, names));
    if (known) void calc.load();
  }, [known, tool.name]);
  const fromRun = async (id: string) => {
    setParams({ run: id || null });
    if (!id) return;
    try {
      calc.fill(await fillFromRun(id, names));
    } catch (error) {
      tellError('cannot read the run', error);
    }
  };
  const fromEngine = (name: string) => {
    const model = models.find((m) => m.model === name);
    setParams({ engine: model ? name : null });
    if (model) calc.fill(fillFromModel(model, names));
  };
  return (
    <div class="source">
      {byRun && (
        <select
          class="control"
          aria-label="From a run"
          value={param('run')}
          onChange={(e) => void fromRun(e.currentTarget.value)}
        >
          <option value="">from a run</option>
          {runs.map((run) => (
            <option key={run.run_id} value={run.run_id}>
              {shown(run.run, 32)}
            </option>
          ))}
        </select>
      )}
      {byEngine && (
        <select
          class="control"
          aria-label="From an engine"
          value={known ? engine : '\0'}
          onChange={(e) => fromEngine(e.currentTarget.value)}
        >
          <option value={'\0'}>from an engine</option>
          {models.map(({ model }) => (
            <option key={model} value={model}>
              {modelName(model, 32)}
            </option>
          ))}
        </select>
      )}
      {tool.examples.length > 0 && (
        <button type="button" class="control" title={exampleLine(tool)} onClick={() => calc.example()}>
          Example
        </button>
      )}
      <button type="button" class="control" onClick={() => calc.clear()}>
        Clear
      </button>
    </div>
  );
}

function Field({ calc, input }: { calc: Calc; input: Input }) {
  const { name, help, bounds } = input;
  const error = calc.fieldErrors.value[name];
  const id = `calc-${name}`;
  const needed = error?.includes('is missing');
  return (
    <div class={`field${error && !needed ? ' wrong' : ''}`}>
      <label for={id} title={[help, bounds && `It is ${bounds}.`].filter(Boolean).join('\n')}>
        {titleOf(name)}
      </label>
      <Control calc={calc} input={input} id={id} error={error} />
      <p class="help quiet">
        <Sentence text={help} />
      </p>
      {error && (
        <p id={`${id}-error`} class={needed ? 'warning' : 'crit'} role={needed ? undefined : 'alert'}>
          {needed ? 'needed' : <Sentence text={error} />}
        </p>
      )}
    </div>
  );
}

function Control({ calc, input, id, error }: { calc: Calc; input: Input; id: string; error?: string }) {
  const { name, kind, words, value, columns } = input;
  const given = calc.given.value[name] ?? '';
  const said = { id, 'aria-invalid': error !== undefined, 'aria-describedby': error && `${id}-error` };
  if (kind === 'switch')
    return (
      <input
        {...said}
        type="checkbox"
        checked={given !== ''}
        onChange={(e) => calc.set(name, e.currentTarget.checked ? '1' : '')}
      />
    );
  if (kind === 'word' && words)
    return (
      <select {...said} class="control" value={given} onChange={(e) => calc.set(name, e.currentTarget.value)}>
        <option value="">not given</option>
        {words.map((word) => (
          <option key={word} value={word}>
            {word}
          </option>
        ))}
      </select>
    );
  if (kind === 'table')
    return (
      <FileInput
        text={calc.files.value[name] ?? ''}
        columns={(columns ?? []).map((c) => c.name).join(',')}
        said={said}
        set={(text) => (calc.files.value = { ...calc.files.peek(), [name]: text })}
      />
    );
  return (
    <input
      {...said}
      class="control"
      type="text"
      inputMode={kind === 'number' ? 'decimal' : undefined}
      list={name === 'gpu' ? 'known-gpus' : undefined}
      placeholder={value}
      value={given}
      onInput={(e) => calc.set(name, e.currentTarget.value)}
    />
  );
}

/** Pasted rows, or a file from the disk. */
function FileInput(props: { text: string; columns: string; said: object; set: (text: string) => void }) {
  const { text, columns, said, set } = props;
  return (
    <div class="file">
      <textarea
        {...said}
        rows={4}
        spellcheck={false}
        placeholder={`${columns}\n…`}
        value={text}
        onInput={(e) => set(e.currentTarget.value)}
      />
      <input
        type="file"
        aria-label="Rows from a file"
        accept=".csv,.txt,text/csv,text/plain"
        onChange={(e) => void e.currentTarget.files?.[0]?.text().then(set)}
      />
    </div>
  );
}

/** Names of cards that are known, for completion. */
export function KnownGpus({ gpus }: { gpus: string[] }) {
  return (
    <datalist id="known-gpus">
      {gpus.map((gpu) => (
        <option key={gpu} value={gpu} />
      ))}
    </datalist>
  );
}

/** What could not be filled from an engine. */
export function NotFilled({ calc }: { calc: Calc }) {
  const measured = calc.measured.value;
  if (!measured || measured.missing.length === 0) return null;
  return (
    <p class="quiet">
      Of <Name text={modelName(measured.model)} limit={48} />:{' '}
      {measured.missing.map((reason, at) => (
        <span key={reason}>
          {at > 0 && '; '}
          <Sentence text={reason} />
        </span>
      ))}
      .
    </p>
  );
}
