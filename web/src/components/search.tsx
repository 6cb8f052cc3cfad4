/** The search of the bar: a few words, and one is there. What finds is loaded when it is first used. */
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { open as go } from '../lib/address';
import { isAbort } from '../lib/api';
import { bind } from '../lib/keys';
import { shown, visible } from '../lib/text';
import type { Found, Hit } from '../search/find';
import { keptParams } from './link';

/** Typing that goes on is not asked for. */
const TYPING_MS = 120;
const TITLES: Record<Hit['kind'], string> = {
  page: 'Pages',
  run: 'Runs',
  model: 'Models',
  host: 'Hosts',
  GPU: 'GPUs',
  rule: 'Rules',
};

/** Opens a place; theme and zone go along. */
function visit(href: string): void {
  const url = new URL(href, window.location.href);
  for (const [name, value] of keptParams()) url.searchParams.set(name, value);
  go(url.pathname + url.search);
  window.scrollTo(0, 0);
}

/** What is typed, what that finds, and which of it is meant. */
function useSearch() {
  const text = useSignal('');
  const open = useSignal(false);
  const found = useSignal<{ text: string; answer: Found } | null>(null);
  const at = useSignal(0);
  useEffect(() => {
    if (!open.value) return;
    const controller = new AbortController();
    const wanted = text.value;
    const ask = async () => {
      try {
        const { find } = await import('../search/find');
        const answer = await find(wanted, controller.signal);
        if (controller.signal.aborted) return;
        found.value = { text: wanted, answer };
        at.value = 0;
      } catch (error) {
        if (!isAbort(error)) found.value = { text: wanted, answer: { groups: [], failed: ['anything'] } };
      }
    };
    const timer = setTimeout(ask, wanted.trim() === '' ? 0 : TYPING_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text.value, open.value]);
  return { text, open, found, at };
}

/** The box with its results. */
export function Search() {
  const { text, open, found, at } = useSearch();
  const field = useRef<HTMLInputElement>(null);
  const answer = open.value ? (found.value?.answer ?? null) : null;
  const hits = answer?.groups.flatMap((group) => group.hits) ?? [];
  const chosen = hits[Math.min(at.value, hits.length - 1)];
  useLayoutEffect(() => {
    const focus = () => {
      field.current?.focus();
      field.current?.select();
    };
    const group = 'Everywhere';
    return bind(
      { keys: '/', does: 'Search', group, run: focus },
      { keys: 'Ctrl+k', does: 'Search, also where / filters', group, run: focus },
    );
  }, []);
  const close = () => {
    open.value = false;
    text.value = '';
    found.value = null;
  };
  const take = (hit: Hit) => {
    close();
    field.current?.blur();
    visit(hit.href);
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      open.value = true;
      at.value = hits.length === 0 ? 0 : (at.value + step + hits.length) % hits.length;
    } else if (event.key === 'Enter') {
      // What was found for the words before is not what is meant now.
      if (chosen && found.value?.text === text.value) take(chosen);
    } else if (event.key === 'Escape') {
      if (!text.value) field.current?.blur();
      close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <search class="search">
      <input
        ref={field}
        type="text"
        value={text.value}
        placeholder="Search"
        role="combobox"
        aria-label="Search runs, hosts, GPUs, models, rules and pages"
        aria-expanded={answer !== null}
        aria-controls="search-results"
        aria-activedescendant={chosen ? 'search-chosen' : undefined}
        aria-autocomplete="list"
        autocomplete="off"
        spellcheck={false}
        onInput={(e) => {
          text.value = e.currentTarget.value;
          open.value = true;
        }}
        onFocus={() => (open.value = true)}
        onBlur={() => (open.value = false)}
        onKeyDown={keys}
      />
      <kbd>/</kbd>
      {answer && <Results answer={answer} text={found.value?.text ?? ''} chosen={chosen} take={take} />}
    </search>
  );
}

function Results(props: { answer: Found; text: string; chosen: Hit | undefined; take: (hit: Hit) => void }) {
  const { answer, text, chosen, take } = props;
  const count = answer.groups.reduce((sum, group) => sum + group.hits.length, 0);
  return (
    <div class="popover">
      <div id="search-results" role="listbox" aria-label="Results">
        {answer.groups.map(({ kind, hits, more }) => (
          <div key={kind} role="group" aria-label={TITLES[kind]}>
            <div class="kind" aria-hidden="true">
              {TITLES[kind]}
              {more && <span class="quiet">the best of more</span>}
            </div>
            {hits.map((hit) => (
              <Row key={hit.href} hit={hit} chosen={hit === chosen} take={take} />
            ))}
          </div>
        ))}
      </div>
      <p role="status" class={count === 0 || answer.failed.length > 0 ? 'quiet' : 'unseen'}>
        {count === 0 && text.trim() !== ''
          ? `No run, model, host, GPU, rule or page has “${shown(text.trim(), 32)}”.`
          : `${count} ${count === 1 ? 'place' : 'places'}`}
        {answer.failed.length > 0 && ` ${answer.failed.join(', ')} could not be asked.`}
      </p>
    </div>
  );
}

function Row({ hit, chosen, take }: { hit: Hit; chosen: boolean; take: (hit: Hit) => void }) {
  const root = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (chosen) root.current?.scrollIntoView({ block: 'nearest' });
  }, [chosen]);
  return (
    <div
      ref={root}
      id={chosen ? 'search-chosen' : undefined}
      role="option"
      tabIndex={-1}
      aria-selected={chosen}
      title={visible(`${hit.text} ${hit.note}`)}
      onPointerDown={(e) => {
        e.preventDefault();
        take(hit);
      }}
    >
      <span>{shown(hit.text, 48)}</span>
      <span class="note">{shown(hit.note, 40)}</span>
    </div>
  );
}
