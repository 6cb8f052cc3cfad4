/** How the page of an engine differs from what is known of it: names that are matched, unknown, missing. */
import { useSignal } from '@preact/signals';
import { Failure } from '../components/failure';
import { Name } from '../components/name';
import { Segments } from '../components/segments';
import { Sentence } from '../components/sentence';
import { setParams } from '../lib/address';
import { shown, visible } from '../lib/text';
import type { Model, Page } from './answers';
import type { Inference } from './model';

/** A row of the report. */
export interface DriftRow {
  kind: 'matched' | 'unknown' | 'missing';
  name: string;
  text: string;
}

/** The report as rows: what is not as expected first. */
export function rowsOf(page: Page): DriftRow[] {
  const { missing, unknown, matched } = page;
  return [
    ...unknown.map((name): DriftRow => ({ kind: 'unknown', name, text: 'kept as it came, not mapped' })),
    ...missing.map((m): DriftRow => ({ kind: 'missing', name: m.canonical, text: m.text })),
    ...matched.map(
      (m): DriftRow => ({
        kind: 'matched',
        name: m.canonical ?? m.source,
        text: [m.canonical ? `as \`${m.source}\`` : 'known, has no canonical series', m.note]
          .filter(Boolean)
          .join('. '),
      }),
    ),
  ];
}

/** Rows that have all words of a search in them. */
export function searched(rows: DriftRow[], search: string): DriftRow[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    const text = `${row.kind} ${row.name} ${row.text}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

const KINDS = ['all', 'unknown', 'missing', 'matched'] as const;

/** The panel. */
export function Vocabulary({ page, model }: { page: Inference; model: Model }) {
  const kind = useSignal<(typeof KINDS)[number]>('all');
  const instance = page.instance.value;
  const read = page.page.value?.instance === instance ? page.page.value : null;
  const of = read?.page ?? null;
  const rows = of ? rowsOf(of) : [];
  const kept = searched(rows, page.search.value).filter((r) => kind.value === 'all' || r.kind === kind.value);
  const count = (one: DriftRow['kind']) => rows.filter((r) => r.kind === one).length;
  const instances = [...new Set(model.replicas.map((r) => r.instance))];
  return (
    <section class="card vocabulary" aria-label="Vocabulary" tabIndex={-1}>
      <header>
        <h3>Vocabulary</h3>
        {of && (
          <span class="unit" title={`${visible(of.url)}, read ${visible(of.read)}`}>
            {shown(of.title, 24)} {shown(of.version ?? '', 24)}
          </span>
        )}
        {instances.length > 1 && (
          <select
            aria-label="Target whose page is compared"
            value={instance ?? ''}
            onChange={(e) => setParams({ target: e.currentTarget.value })}
          >
            {instances.map((one) => (
              <option key={one} value={one}>
                {shown(one, 28)}
              </option>
            ))}
          </select>
        )}
      </header>
      <div class="tools">
        <Segments
          label="Names that are"
          value={kind.value}
          choose={(next) => (kind.value = next)}
          choices={KINDS.map((one) => ({
            value: one,
            content: one === 'all' ? 'all' : `${count(one)} ${one}`,
          }))}
        />
        <input
          type="search"
          aria-label="Search names"
          placeholder="search names"
          value={page.search.value}
          onInput={(e) => setParams({ q: e.currentTarget.value || null })}
        />
      </div>
      {page.pageError.value !== null && (
        <Failure error={page.pageError.value} retry={() => void page.load()} />
      )}
      {read && !of && (
        <p class="quiet nothing-here">
          No page of {shown(instance ?? '')} came in the last minutes of this range: there is nothing to
          compare.
        </p>
      )}
      {of && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Names of the page">
          <table>
            <tbody>
              {kept.map((row) => (
                <tr key={`${row.kind} ${row.name} ${row.text}`}>
                  <td class={row.kind}>{row.kind}</td>
                  <td>
                    <code>
                      <Name text={row.name} limit={44} />
                    </code>{' '}
                    <Sentence text={row.text} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {kept.length === 0 && <p class="quiet nothing-here">No name is left by this search.</p>}
        </div>
      )}
    </section>
  );
}
