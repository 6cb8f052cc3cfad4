/** Calculators: what should I expect? */
import { useEffect, useLayoutEffect, useMemo } from 'preact/hooks';
import { CalcForm, KnownGpus, NotFilled } from '../calc/form';
import { Calc } from '../calc/model';
import { Command, Figures, Grounds, Rows, Warnings } from '../calc/result';
import { Roofline } from '../calc/roofline';
import { titleOf } from '../calc/words';
import { Failure } from '../components/failure';
import { keptQuery, Link } from '../components/link';
import { open, param } from '../lib/address';
import { tokenEntered } from '../lib/api';
import { bind } from '../lib/keys';
import '../styles/calc.css';

/** The page. */
export function CalcPage() {
  const calc = useMemo(() => new Calc(), []);
  const again = tokenEntered.value;
  useEffect(() => {
    void calc.readTools();
    return calc.follow();
  }, [calc, again]);
  const name = calc.name.value;
  useEffect(() => {
    document.title = `${titleOf(name)} · Calculators · truegauge`;
  }, [name]);
  useKeys(calc);
  const tools = calc.tools.value;
  const tool = calc.tool.value;
  return (
    <main class="calc">
      <div class="page-bar">
        <h1>Calculators</h1>
        <nav class="segments" aria-label="Calculators">
          {tools?.tools.map((one) => (
            <Link key={one.name} href={`/calc/${one.name}`} current={one.name === name} title={one.about}>
              {titleOf(one.name)}
            </Link>
          ))}
        </nav>
      </div>
      {calc.toolsError.value !== null && (
        <Failure error={calc.toolsError.value} retry={() => void calc.readTools()} />
      )}
      {tools && !tool && (
        <section class="empty">
          <h2>No such calculator</h2>
          <p>
            There {tools.tools.length === 1 ? 'is' : 'are'} {tools.tools.map((t) => t.name).join(', ')}.
          </p>
        </section>
      )}
      {tools && tool && (
        <div class="columns">
          <KnownGpus gpus={tools.gpus} />
          <CalcForm calc={calc} />
          <div class="answer" aria-live="polite">
            {calc.error.value !== null && <Failure error={calc.error.value} retry={() => void calc.load()} />}
            <Answer calc={calc} />
          </div>
        </div>
      )}
    </main>
  );
}

function Answer({ calc }: { calc: Calc }) {
  const answer = calc.answer.value;
  const tool = calc.tool.value!;
  if (!answer || answer.tool !== tool.name) {
    const wrong = Object.keys(calc.fieldErrors.value).length > 0;
    return (
      <p class="nothing">
        {wrong
          ? 'No answer yet: an input is missing or cannot be.'
          : 'Fill in what you know, or take the example. What is left out is said in the answer.'}
      </p>
    );
  }
  const measured = calc.measured.value;
  const wanted = Number(param('tpot'));
  const tpot = wanted > 0 ? wanted : (measured?.tpot ?? null);
  return (
    <>
      <Warnings answer={answer} />
      <Figures answer={answer} />
      {tool.name === 'roofline' && (
        <>
          <Roofline answer={answer} curve={calc.curve.value} measured={measured} tpot={tpot} />
          <NotFilled calc={calc} />
        </>
      )}
      <Rows answer={answer} />
      <Grounds answer={answer} />
      <Command line={answer.command} />
    </>
  );
}

function useKeys(calc: Calc): void {
  useLayoutEffect(() => {
    const group = 'Calculators';
    const turn = (by: number) => () => {
      const all = calc.tools.peek()?.tools ?? [];
      const next = all[all.findIndex((t) => t.name === calc.name.peek()) + by];
      return next ? open(`/calc/${next.name}${keptQuery()}`) : false;
    };
    return bind(
      { keys: '[', does: 'The calculator before', group, run: turn(-1) },
      { keys: ']', does: 'The next calculator', group, run: turn(1) },
      {
        keys: '/',
        does: 'The first input',
        group,
        run: () => document.querySelector<HTMLElement>('.form .field :is(input, select, textarea)')?.focus(),
      },
    );
  }, [calc]);
}
