/** The end of what a recorded command wrote. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';

const TAIL = /^command\/(?:rank-(\d+)\/)?(stdout|stderr)_tail$/;
/** Begins colours and cursor movements of a terminal. */
const ESCAPE = '\u001b[';
/** Streams that are shown. */
const SHOWN = 16;

/** Output as lines that hide nothing: of what was written over each other, the last. */
export function linesOf(text: string): string[] {
  const [first, ...rest] = text.split(ESCAPE);
  const plain = [first, ...rest.map((piece) => piece.replace(/^[0-9;?]*[A-Za-z]/, ''))].join('');
  return plain
    .replace(/\r?\n$/, '')
    .split(/\r?\n/)
    .map((line) => visible(line.slice(line.lastIndexOf('\r') + 1).replace(/\t/g, '    ')));
}

/** Streams of a run's command that hold something: rank, name, text. */
export function tailsOf(attributes: Record<string, unknown>): [title: string, text: string][] {
  return Object.entries(attributes)
    .flatMap(([key, text]) => {
      const found = TAIL.exec(key);
      if (!found || typeof text !== 'string' || text === '') return [];
      return [{ rank: Number(found[1] ?? -1), stream: found[2], text }];
    })
    .sort((a, b) => a.rank - b.rank || (a.stream < b.stream ? 1 : -1))
    .map(({ rank, stream, text }) => [rank < 0 ? stream : `rank ${rank}, ${stream}`, text]);
}

/** One stream, its end in sight. */
function Tail({ title, text }: { title: string; text: string }) {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    box.current!.scrollTop = box.current!.scrollHeight;
  }, [text]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <pre ref={box} tabIndex={0} role="region" aria-label={`Output: ${title}`}>
        {linesOf(text).join('\n')}
      </pre>
    </figure>
  );
}

/** The panel; nothing where no command was recorded. */
export function OutputPanel({ attributes }: { attributes: Record<string, unknown> }) {
  const tails = tailsOf(attributes);
  if (tails.length === 0) return null;
  return (
    <section class="panel output">
      <h2>
        Output <span class="quiet">the end of what the command wrote</span>
      </h2>
      {tails.slice(0, SHOWN).map(([title, text]) => (
        <Tail key={title} title={title} text={text} />
      ))}
      {tails.length > SHOWN && (
        <p class="quiet">and {formatCount(tails.length - SHOWN)} more streams, among the attributes</p>
      )}
    </section>
  );
}
