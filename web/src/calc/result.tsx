/** What a calculator answers: figures, what is not known and why, rows, what is taken for granted, and the command. */
import { WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { copy } from '../lib/download';
import type { CalcAnswer, Value } from './answers';
import { figureOrder, figureTitle, unitOf, valueText } from './words';

const ROWS_MAX = 200;

/** Figures, in large. */
export function Figures({ answer }: { answer: CalcAnswer }) {
  const reasons = new Map(answer.absent.map(({ name, reason }) => [name, reason]));
  const told = Object.entries(answer.result).filter(([name, value]) => isFigure(value) || reasons.has(name));
  const silent = answer.absent.filter(({ name }) => !told.some(([key]) => key === name));
  const values = new Map<string, Value>([
    ...told,
    ...silent.map(({ name }): [string, Value] => [name, null]),
  ]);
  return (
    <dl class="tiles" aria-label="Figures">
      {figureOrder([...values.keys()], answer.formula).map((name) => {
        const text = valueText(values.get(name), unitOf(name));
        return (
          <div key={name} class={text === null ? 'missing' : ''}>
            <dt title={name}>{figureTitle(name)}</dt>
            <dd>
              {text === null ? (
                <Sentence text={`— ${reasons.get(name) ?? 'not known'}`} />
              ) : (
                <Name text={text} limit={40} />
              )}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

const isFigure = (value: Value) => ['number', 'string', 'boolean'].includes(typeof value);

/** What to look at. */
export function Warnings({ answer }: { answer: CalcAnswer }) {
  return (
    <>
      {answer.warnings.map((text) => (
        <p key={text} class="caution" role="status">
          <WarnIcon /> <Sentence text={text} />
        </p>
      ))}
    </>
  );
}

/** Figures for several cases. */
export function Rows({ answer }: { answer: CalcAnswer }) {
  const { rows, columns } = answer;
  if (rows.length === 0) return null;
  return (
    <section class="panel" aria-label="Cases">
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of cases">
        <table>
          <thead>
            <tr>
              {columns.map((c) => (
                <th key={c.key} scope="col" class="number" title={c.key}>
                  {c.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS_MAX).map((row, at) => (
              <tr key={at}>
                {columns.map(({ key, unit }) => {
                  const text = valueText(row[key], unit || unitOf(key));
                  return (
                    <td key={key} class={row[key] === false ? 'number crit' : 'number'}>
                      {text ?? <span class="absent">—</span>}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > ROWS_MAX && <p class="quiet">{rows.length - ROWS_MAX} more: the command prints all.</p>}
    </section>
  );
}

/** What figures take for granted, and how they are reckoned. */
export function Grounds({ answer }: { answer: CalcAnswer }) {
  const { assumptions, formula } = answer;
  return (
    <section class="panel grounds" aria-label="What this stands on">
      {assumptions.length > 0 && (
        <>
          <h2>Taken for granted</h2>
          <ul>
            {assumptions.map(({ text, source, url }) => (
              <li key={text}>
                <Sentence text={text} />
                {source && (
                  <>
                    {' '}
                    {url && /^https?:\/\//.test(url) ? (
                      <a href={url} rel="noreferrer noopener" target="_blank">
                        {source}
                      </a>
                    ) : (
                      <span class="quiet">{source}</span>
                    )}
                  </>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
      {formula.length > 0 && (
        <>
          <h2>How it is reckoned</h2>
          <dl>
            {formula.map(({ name, text }) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>
                  <code>{text}</code>
                </dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </section>
  );
}

/** The same as a command. */
export function Command({ line }: { line: string }) {
  if (!line) return null;
  return (
    <p class="command">
      <span class="quiet">the same in a terminal</span>{' '}
      <code>
        <Name text={line} limit={400} />
      </code>{' '}
      <button type="button" class="link" onClick={() => void copy(line, 'the command')}>
        Copy
      </button>
    </p>
  );
}
