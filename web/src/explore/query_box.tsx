/** A query as it is typed: colours, completion, and a caret under a mistake. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { WarnIcon } from '../components/icons';
import { errorLine } from '../lib/api';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import { type Completer, inserted, type Option, type Options } from './complete';
import type { Advice } from './explain';
import { type Asked, type Explore, letterOf, QUERIES_MAX } from './model';
import { type Mistake, mistakeOf, plainError, wordsOf } from './words';

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
  const options = found?.options ?? [];

  const close = () => {
    asking.current++;
    completer.stop();
    setFound(null);
  };
  const complete = (value: string, cursor: number, wanted = false) => {
    const mine = ++asking.current;
    setTimeout(
      () => {
        if (mine !== asking.current) return;
        completer.at(value, cursor, wanted).then(
          (next) => {
            if (mine !== asking.current) return;
            setFound(next);
            setChosen(0);
          },
          // Called off by the next key.
          () => {},
        );
      },
      wanted ? 0 : WAIT_MS,
    );
  };
  const take = (option: Option) => {
    const area = field.current!;
    if (!found) return;
    const next = inserted(area.value, found, option.insert);
    // At once: the next key is typed behind it.
    area.value = next.text;
    area.setSelectionRange(next.cursor, next.cursor);
    explore.type(at, next.text);
    close();
    area.focus();
    // Where a value or a duration comes next, it is offered.
    if (/["([{]$/.test(option.insert)) complete(next.text, next.cursor);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.ctrlKey && event.key === ' ') complete(text, field.current!.selectionStart, true);
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
            left={columnOf(text, found.from)}
            typed={found.typed}
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
      {!message &&
        explore.explained.value
          .get(text)
          ?.advice.map((advice) => (
            <AdviceLine key={advice.message} advice={advice} mend={(query) => explore.mend(at, query)} />
          ))}
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

/** A likely mistake, and a button that mends it. */
function AdviceLine({ advice, mend }: { advice: Advice; mend: (query: string) => void }) {
  const { message, fix } = advice;
  return (
    <p class="advice" role="status">
      <WarnIcon />
      <span>
        {message
          .split('`')
          .map((part, at) => (at % 2 === 1 ? <code key={part}>{visible(part)}</code> : visible(part)))}
      </span>
      {fix && (
        <button type="button" class="link" title={visible(fix.query)} onClick={() => mend(fix.query)}>
          {visible(fix.says)}
        </button>
      )}
    </p>
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
  const list = useRef<HTMLDivElement>(null);
  const { about, help, caveat, text } = options[chosen] ?? options[0];
  useEffect(() => {
    list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
  }, [chosen]);
  return (
    <div class="completion" style={{ '--column': `${left}ch` }}>
      <div class="popover" id={id} role="listbox" aria-label="Completions" ref={list}>
        {options.map((option, at) => (
          <div
            key={`${option.kind} ${option.text}`}
            id={`${id}-${at}`}
            role="option"
            aria-selected={at === chosen}
            class={`o-${option.kind}`}
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
      {(help || about || caveat) && (
        <div class="popover help">
          <b class="mono">{visible(text)}</b> {about && <span class="quiet">{visible(about)}</span>}
          {help && <p>{visible(help)}</p>}
          {caveat && (
            <p>
              <b>How it misleads.</b> {visible(caveat)}
            </p>
          )}
        </div>
      )}
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
