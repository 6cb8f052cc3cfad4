/** A query as it is typed: colours, completion, and a caret under a mistake. */
import { useMemo, useRef, useState } from 'preact/hooks';
import { errorLine } from '../lib/api';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import type { Completer, Option, Options } from './complete';
import { type Asked, type Explore, letterOf, QUERIES_MAX } from './model';
import { contextAt, type Mistake, mistakeOf, plainError, wordsOf } from './words';

const SHOWN = 8;
const WAIT_MS = 80;

/** All boxes and the way to another one. */
export function QueryBoxes({ explore, completer }: { explore: Explore; completer: Completer }) {
  const drafts = explore.drafts.value;
  return (
    <section class="boxes" aria-label="Queries">
      {drafts.map((text, at) => (
        // A box is its place: what is typed moves between them.
        <QueryBox key={letterOf(at)} explore={explore} completer={completer} at={at} text={text} />
      ))}
      {drafts.length < QUERIES_MAX && (
        <button
          type="button"
          class="plain add"
          onClick={() => (explore.drafts.value = [...drafts, ''])}
          disabled={drafts[drafts.length - 1] === ''}
        >
          + query
        </button>
      )}
    </section>
  );
}

interface BoxProps {
  explore: Explore;
  completer: Completer;
  at: number;
  text: string;
}

function QueryBox({ explore, completer, at, text }: BoxProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [found, setFound] = useState<Options | null>(null);
  const [chosen, setChosen] = useState(0);
  const asking = useRef(0);
  const letter = letterOf(at);
  const asked = explore.asked.value[at];
  const current = asked?.query === text ? asked : undefined;
  const error = current?.error.value ?? null;
  const message = error === null ? '' : plainError(messageOf(error));
  const mistake = message ? mistakeOf(text, message) : null;
  const list = `options-${letter}`;
  const options = found?.options.slice(0, SHOWN) ?? [];

  const close = () => {
    asking.current++;
    setFound(null);
  };
  const complete = (value: string, cursor: number) => {
    const mine = ++asking.current;
    setTimeout(() => {
      if (mine !== asking.current) return;
      void completer.at(value, cursor).then((next) => {
        if (mine !== asking.current) return;
        setFound(next);
        setChosen(0);
      });
    }, WAIT_MS);
  };
  const take = (option: Option) => {
    const area = field.current!;
    // More may have been typed since the list was made.
    const context = contextAt(area.value, area.selectionStart) ?? found?.context;
    if (!context) return;
    // At once: the next key is typed behind it.
    area.setRangeText(option.insert, context.from, context.to, 'end');
    explore.type(at, area.value);
    close();
    area.focus();
  };
  const keys = (event: KeyboardEvent) => {
    if (event.ctrlKey && event.key === ' ') complete(text, field.current!.selectionStart);
    else if (event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === 'Enter') close();
      return;
    } else if (event.key === 'Escape') {
      if (options.length > 0) close();
      else field.current!.blur();
    } else if (options.length === 0 || event.shiftKey) return;
    else if (event.key === 'ArrowDown') setChosen((chosen + 1) % options.length);
    else if (event.key === 'ArrowUp') setChosen((chosen - 1 + options.length) % options.length);
    else if (event.key === 'Enter' || event.key === 'Tab') take(options[chosen]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const remove = () => {
    const rest = explore.drafts.peek().filter((_, other) => other !== at);
    explore.drafts.value = rest.length > 0 ? rest : [''];
    if (current) explore.run();
  };
  return (
    <div class="box">
      <span class="letter" aria-hidden="true">
        {letter}
      </span>
      <div class="typed">
        <pre aria-hidden="true">
          <Coloured text={text} mistake={mistake} />
        </pre>
        <textarea
          ref={field}
          rows={1}
          value={text}
          placeholder={at === 0 ? 'PromQL, such as rate(name[5m])' : ''}
          aria-label={`Query ${letter}`}
          aria-autocomplete="list"
          aria-controls={options.length > 0 ? list : undefined}
          aria-activedescendant={options.length > 0 ? `${list}-${chosen}` : undefined}
          aria-invalid={message !== ''}
          aria-describedby={message ? `error-${letter}` : undefined}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          onInput={(e) => {
            explore.type(at, e.currentTarget.value);
            complete(e.currentTarget.value, e.currentTarget.selectionStart);
          }}
          onBlur={close}
          onKeyDown={keys}
        />
        {found && options.length > 0 && (
          <OptionList
            id={list}
            options={options}
            chosen={chosen}
            left={columnOf(text, found.context.from)}
            typed={found.context.typed}
            take={take}
          />
        )}
      </div>
      <Outcome asked={current} typed={text.trim() !== ''} />
      <button
        type="button"
        class="plain"
        aria-label={`Remove query ${letter}`}
        title={`Remove query ${letter}`}
        disabled={explore.drafts.value.length === 1 && text === ''}
        onClick={remove}
      >
        ×
      </button>
      {message && (
        <p class="mistake" id={`error-${letter}`} role="alert">
          {visible(mistake ? mistake.reason : message)}
          {mistake && (
            <span class="quiet">
              {' '}
              line {mistake.line}, column {mistake.column}
            </span>
          )}
        </p>
      )}
    </div>
  );
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : errorLine(error));

/** How far from the left a place stands, in characters. */
function columnOf(text: string, at: number): number {
  return at - (text.lastIndexOf('\n', at - 1) + 1);
}

function Coloured({ text, mistake }: { text: string; mistake: Mistake | null }) {
  const words = useMemo(() => wordsOf(text), [text]);
  return (
    <>
      {words.map(({ kind, text: word, from }) => {
        const wrong = mistake && from <= mistake.at && mistake.at < from + word.length;
        return (
          <span class={`w-${kind}${wrong ? ' wrong' : ''}`} key={from}>
            {word}
          </span>
        );
      })}
      {mistake && mistake.at >= text.length && <span class="wrong">{'\u00a0'}</span>}
      {'\n'}
    </>
  );
}

interface ListProps {
  id: string;
  options: Option[];
  chosen: number;
  left: number;
  typed: string;
  take: (option: Option) => void;
}

function OptionList({ id, options, chosen, left, typed, take }: ListProps) {
  const help = options[chosen]?.help;
  return (
    <div class="completion" style={{ '--column': `${left}ch` }}>
      <div class="popover" id={id} role="listbox" aria-label="Completions">
        {options.map((option, at) => (
          <div
            key={option.text}
            id={`${id}-${at}`}
            role="option"
            aria-selected={at === chosen}
            onPointerDown={(e) => {
              e.preventDefault();
              take(option);
            }}
          >
            <span class="mono">
              <Matched text={option.text} typed={typed} />
            </span>
            {option.note && <span class="count">{option.note}</span>}
          </div>
        ))}
      </div>
      {help && <div class="popover help">{visible(help)}</div>}
    </div>
  );
}

function Matched({ text, typed }: { text: string; typed: string }) {
  const at = text.toLowerCase().indexOf(typed.toLowerCase());
  if (at < 0 || typed === '') return <bdi>{visible(text)}</bdi>;
  return (
    <bdi>
      {visible(text.slice(0, at))}
      <b>{visible(text.slice(at, at + typed.length))}</b>
      {visible(text.slice(at + typed.length))}
    </bdi>
  );
}

/** What running it came to, in a few words. */
function Outcome({ asked, typed }: { asked: Asked | undefined; typed: boolean }) {
  const answer = asked?.answer.value;
  const failed = asked && asked.error.value !== null;
  let text = typed ? 'not run yet' : '';
  if (failed) text = 'failed';
  else if (answer) {
    const count = answer.total ?? answer.series.length;
    text = [
      `${answer.total === null ? 'more than ' : ''}${formatCount(count)} series`,
      `${formatCount(answer.samplesRead)} samples read`,
      `${answer.milliseconds < 10 ? answer.milliseconds.toFixed(1) : formatCount(answer.milliseconds)} ms`,
    ].join(' · ');
  } else if (asked?.running.value) text = 'running';
  return (
    <output class={failed ? 'outcome crit' : 'outcome'} title="Series, samples read, time of the server">
      {text}
    </output>
  );
}
