/** Attributes of a span: of thousands, only those that are seen are in the page. */
import { useSignal } from '@preact/signals';
import { copy } from '../lib/download';
import { formatCount } from '../lib/number';
import { shown, visible } from '../lib/text';
import type { AttributeValue } from './answer';

const ROW_PX = 34;
const HEIGHT_PX = 238;
const OVERSCAN = 5;
/** More have a filter. */
const FILTERED = 12;
/** Characters of a value in the page; a copy has all of them. */
const VALUE_MAX = 200;
const TITLE_MAX = 2000;

type Attributes = [key: string, value: AttributeValue][];

const textOf = (value: AttributeValue) => (typeof value === 'string' ? value : String(value));

/** The list. */
export function AttributeList({ attributes, label }: { attributes: Attributes; label: string }) {
  const words = useSignal('');
  const top = useSignal(0);
  if (attributes.length === 0) return <p class="quiet">None.</p>;
  const wanted = words.value.toLowerCase();
  const fitting = wanted
    ? attributes.filter(([key, value]) => `${key} ${textOf(value)}`.toLowerCase().includes(wanted))
    : attributes;
  const first = Math.max(0, Math.floor(top.value / ROW_PX) - OVERSCAN);
  const last = Math.min(fitting.length, Math.ceil((top.value + HEIGHT_PX) / ROW_PX) + OVERSCAN);
  return (
    <>
      {attributes.length > FILTERED && (
        <input
          type="search"
          aria-label={`Filter ${label.toLowerCase()}`}
          placeholder={`filter ${formatCount(attributes.length)}`}
          onInput={(e) => {
            words.value = e.currentTarget.value;
          }}
        />
      )}
      <div
        class="attributes"
        tabIndex={0}
        role="region"
        aria-label={label}
        style={{ maxHeight: `${HEIGHT_PX}px` }}
        onScroll={(e) => {
          top.value = e.currentTarget.scrollTop;
        }}
      >
        <dl style={{ height: `${fitting.length * ROW_PX}px` }}>
          {fitting.slice(first, last).map(([key, value], at) => (
            <div key={`${first + at} ${key}`} style={{ top: `${(first + at) * ROW_PX}px` }}>
              <dt title={visible(key).slice(0, TITLE_MAX)}>{shown(key, 60)}</dt>
              <dd title={visible(textOf(value).slice(0, TITLE_MAX))}>
                <bdi>{visible(textOf(value).slice(0, VALUE_MAX))}</bdi>
              </dd>
            </div>
          ))}
        </dl>
      </div>
      <p>
        {fitting.length < attributes.length && (
          <span class="quiet">{`${formatCount(fitting.length)} of ${formatCount(attributes.length)} `}</span>
        )}
        <button
          type="button"
          class="link"
          onClick={() =>
            void copy(JSON.stringify(Object.fromEntries(attributes), null, 2), label.toLowerCase())
          }
        >
          Copy all as JSON
        </button>
      </p>
    </>
  );
}
