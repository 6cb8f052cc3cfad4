/** What holds the model back: a claim, its sentence, and the numbers it is from. */
import { useSignal } from '@preact/signals';
import { StateIcon, WarnIcon } from '../components/icons';
import { Link } from '../components/link';
import { Sentence } from '../components/sentence';
import { visible } from '../lib/text';
import type { Model } from './answers';
import { claimOf, numberName, numberText } from './words';

const HELD = ['memory_bound', 'kv_full', 'queueing'];

/** The strip. */
export function VerdictStrip({ model }: { model: Model }) {
  const open = useSignal(false);
  const { verdict } = model;
  const held = HELD.includes(verdict?.kind ?? '');
  const fine = verdict?.kind === 'compute_bound' || verdict?.kind === 'idle';
  return (
    <section class={`verdict ${held ? 'held' : fine ? 'fine' : 'open'}`} aria-label="Verdict">
      <div class="line">
        {held ? <WarnIcon /> : <StateIcon state={fine ? 'finished' : 'stale'} />}
        <p>
          <b role="status">{claimOf(model)}</b>{' '}
          {verdict ? (
            <Sentence text={verdict.sentence} />
          ) : (
            'No replica told of requests, cache or cards in these minutes.'
          )}
        </p>
        <Link class="control" href={`/calc/roofline?engine=${encodeURIComponent(model.model)}`}>
          Roofline
        </Link>
        {verdict && (
          <button
            type="button"
            class="control"
            aria-expanded={open.value}
            onClick={() => (open.value = !open.value)}
          >
            Evidence
          </button>
        )}
      </div>
      {open.value && verdict && (
        <dl>
          {verdict.numbers.map((number) => (
            <div key={number.name} class={number.name === 'busy' ? 'demoted' : ''}>
              <dt>{numberName(number.name)}</dt>
              <dd class={number.value === null ? 'quiet' : ''}>
                {numberText(number.name, number.value, number.unit)}
              </dd>
              <dd>
                <code title={visible(number.metric)}>{visible(number.metric)}</code>
              </dd>
            </div>
          ))}
        </dl>
      )}
      {open.value && model.gpus_reason && (
        <p class="quiet">
          The cards: <Sentence text={model.gpus_reason} />.
        </p>
      )}
    </section>
  );
}
