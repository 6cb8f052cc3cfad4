/** Runs: which run needs me, and which is best? */
import { signal, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { EmptyRuns } from '../components/empty_runs';
import { Failure } from '../components/failure';
import { FilterBar } from '../components/filter_bar';
import { StateIcon } from '../components/icons';
import { keptParams, keptQuery } from '../components/link';
import { Menu } from '../components/menu';
import { MetricPicker } from '../components/metric_picker';
import type { CellContext } from '../components/run_columns';
import { RunTable } from '../components/run_table';
import { Segments } from '../components/segments';
import { SelectionBar } from '../components/selection_bar';
import { Snippet } from '../components/snippet';
import { ViewsMenu } from '../components/views_menu';
import { open, param, setParams } from '../lib/address';
import type { RunRow, State } from '../lib/answers';
import { isAbort, tokenEntered } from '../lib/api';
import { now, zone } from '../lib/clock';
import { completions } from '../lib/completion';
import { saveCsv } from '../lib/download';
import { unknownKeys } from '../lib/filter';
import { formatCount } from '../lib/number';
import { paced } from '../lib/pace';
import { runPath, type Scope } from '../lib/route';
import { FigureList } from '../lib/run_figures';
import { RunList } from '../lib/run_list';
import { changeTags, deleteRuns } from '../lib/runs';
import { DEFAULT_SORT, parseSort, writeSort } from '../lib/sort';
import { Sparks } from '../lib/sparks';
import { follow } from '../lib/stream';
import { formatAge } from '../lib/time';
import { tellError } from '../lib/toast';
import { selectedIds, useRunKeys } from './run_keys';
import { columnLayout } from './run_layout';

const STATES: State[] = ['running', 'stale', 'failed', 'finished', 'paused'];
const REFRESH_MS = 1000;
/** Columns that the list itself does not tell. */
const FIGURES = new Set(['gpus', 'tokens', 'mfu', 'ettr', 'cost']);
const startOpen = signal(false);

/** The page. */
export function RunsPage({ scope }: { scope: Scope | null }) {
  const list = useMemo(() => new RunList(), []);
  const sparks = useMemo(() => new Sparks(), []);
  const figures = useMemo(() => new FigureList(), []);
  const at = useSignal(0);
  const editing = useSignal<string | null>(null);
  const heard = useSignal<number | null>(null);
  const seen = useRef<[number, number]>([0, 40]);
  const question = {
    scope,
    filter: param('f'),
    state: param('state'),
    sort: param('sort') || DEFAULT_SORT,
    metric: param('metric'),
  };
  const layout = columnLayout(param('cols'), scope);
  const key = JSON.stringify(question);
  const rows = list.rows.value;
  const metric = question.metric || rows.find((r) => r.metric)?.metric?.name || 'loss';
  const selected = selectedIds();
  const chosen = rows.filter((r) => selected.has(r.run_id));

  useEffect(() => {
    void list.show(question);
    at.value = 0;
  }, [key, tokenEntered.value]);
  const want = () => {
    const shown = list.rows.peek().slice(...seen.current);
    sparks.want(shown);
    if (layout.columns.some((c) => FIGURES.has(c.id))) figures.want(shown);
  };
  useEffect(want, [rows, layout.columns.length]);
  useEffect(() => {
    const refresh = paced(() => list.refresh(), REFRESH_MS);
    const leave = follow('runs', () => {
      heard.value = Date.now();
      refresh.ask();
    });
    return () => {
      leave();
      refresh.end();
    };
  }, [tokenEntered.value]);
  useEffect(
    () => () => {
      sparks.end();
      figures.end();
    },
    [sparks, figures],
  );
  useEffect(() => {
    document.title = `${scope?.project ?? 'Runs'} · truegauge`;
  }, [scope?.project]);

  const select = (ids: Set<string>) => setParams({ sel: [...ids].join(',') });
  const go = (row: RunRow | undefined) => row && open(runPath(row, row.run_id) + keptQuery());
  const tag = async (ids: string[], add: string[], remove: string[]) => {
    try {
      await changeTags(ids, add, remove);
      await list.refresh();
    } catch (error) {
      tellError('cannot change the tags', error);
    }
  };
  const remove = (doomed: RunRow[]) => {
    select(new Set());
    const gone = new Set(doomed.map((r) => r.run_id));
    list.rows.value = list.rows.value.filter((r) => !gone.has(r.run_id));
    void deleteRuns(doomed, () => void list.refresh());
  };
  const save = async (which: RunRow[]) => {
    for (const row of which) await saveCsv(row.run_id, row.run, null);
  };
  const compare = () =>
    open(`/compare?${new URLSearchParams([['runs', [...selectedIds()].join(',')], ...keptParams()])}`);
  useRunKeys({ list, at, editing, go, select, compare, save, remove });

  const context: CellContext = {
    now: now.value,
    zone: zone.value,
    metric,
    spark: (row) => sparks.of(row),
    figures: (row) => figures.of(row),
    editing: editing.value,
    edit: (id) => (editing.value = id),
    changeTags: (row, add, gone) => tag([row.run_id], add, gone),
  };
  const empty = list.known.value && list.total.value === 0 && !question.filter && !question.state;
  const counts = list.counts.value;
  return (
    <main class="runs-page">
      <div class="page-bar">
        <h1>Runs</h1>
        <span class="quiet" role="status">
          {list.known.value && `${formatCount(list.total.value)} ${list.total.value === 1 ? 'run' : 'runs'}`}
          {list.known.value && (question.filter || question.state || scope)
            ? ` · ${formatCount(list.matching.value)} match`
            : ''}
        </span>
        <div class="right">
          <Menu label="Columns" named items={() => layout.items} class="as-control">
            Columns {layout.columns.length} <span aria-hidden="true">▾</span>
          </Menu>
          <MetricPicker
            value={question.metric}
            shown={metric}
            runId={rows[at.value]?.run_id}
            choose={(m) => setParams({ metric: m })}
          />
          <ViewsMenu />
          <Live heard={heard.value} rows={rows} />
          <button type="button" class="primary" onClick={() => (startOpen.value = true)}>
            Start a run
          </button>
        </div>
      </div>
      <div class="filter-row">
        <FilterBar
          value={question.filter}
          change={(f) => setParams({ f })}
          unknown={unknownKeys(list.warnings.value)}
          complete={(typed) => completions(typed, rows, counts)}
        />
        <StateSegments counts={counts} value={question.state} />
        {list.warnings.value.length > 0 && (
          <span class="warning">{list.warnings.value.join(' · ').replaceAll('`', '')}</span>
        )}
      </div>
      {list.error.value !== null && <Failure error={list.error.value} retry={() => void list.refresh()} />}
      {empty ? (
        <EmptyRuns />
      ) : (
        <RunTable
          rows={rows}
          matching={list.matching.value}
          columns={layout.columns}
          widths={layout.widths}
          resize={layout.resize}
          context={context}
          sort={parseSort(question.sort)}
          setSort={(keys) => setParams({ sort: writeSort(keys) })}
          selected={selected}
          select={select}
          at={at.value}
          setAt={(index) => (at.value = index)}
          open={go}
          seen={(from, to) => {
            seen.current = [from, to];
            want();
            void list.reach(to + 100).catch((error) => isAbort(error) || tellError('cannot list', error));
          }}
        />
      )}
      {list.known.value && !empty && list.matching.value === 0 && (
        <p class="nothing">
          No run matches.{' '}
          <button type="button" class="link" onClick={() => setParams({ f: null, state: null })}>
            Clear the filter
          </button>
        </p>
      )}
      {chosen.length > 0 && (
        <SelectionBar
          count={chosen.length}
          tag={(name) =>
            tag(
              chosen.map((r) => r.run_id),
              [name],
              [],
            )
          }
          compare={compare}
          save={() => save(chosen)}
          remove={() => remove(chosen)}
          clear={() => select(new Set())}
        />
      )}
      {startOpen.value && (
        <Dialog title="Start a run" close={() => (startOpen.value = false)}>
          <Snippet />
        </Dialog>
      )}
    </main>
  );
}

function StateSegments({ counts, value }: { counts: Partial<Record<State, number>>; value: string }) {
  const all = STATES.reduce((sum, s) => sum + (counts[s] ?? 0), 0);
  const shown = STATES.filter((s) => s !== 'paused' || (counts.paused ?? 0) > 0);
  const choices = shown.map((s) => ({
    value: s as string,
    content: (
      <>
        <StateIcon state={s} /> {s} {formatCount(counts[s] ?? 0)}
      </>
    ),
  }));
  return (
    <Segments
      label="State"
      value={value}
      choose={(state) => setParams({ state })}
      choices={[{ value: '', content: `All ${formatCount(all)}` }, ...choices]}
    />
  );
}

function Live({ heard, rows }: { heard: number | null; rows: RunRow[] }) {
  const last = Math.max(0, ...rows.map((r) => r.last_time_ms ?? 0));
  if (!rows.some((r) => r.state === 'running') && heard === null) return null;
  return (
    <span class="live">
      <span class="dot" /> live
      {last > 0 ? ` · data age ${formatAge((now.value - last) / 1000)}` : ''}
    </span>
  );
}
