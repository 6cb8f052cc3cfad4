/** Runs: which run needs me, and which is best? */
import { signal, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { EmptyRuns } from '../components/empty_runs';
import { Failure } from '../components/failure';
import { FilterBar } from '../components/filter_bar';
import { StateIcon } from '../components/icons';
import { keptQuery } from '../components/link';
import { Menu } from '../components/menu';
import { MetricPicker } from '../components/metric_picker';
import { type CellContext, COLUMNS } from '../components/run_columns';
import { RunTable } from '../components/run_table';
import { Segments } from '../components/segments';
import { SelectionBar } from '../components/selection_bar';
import { Snippet } from '../components/snippet';
import { open, param, setParams } from '../lib/address';
import type { RunRow, State } from '../lib/answers';
import { isAbort, tokenEntered } from '../lib/api';
import { now, zone } from '../lib/clock';
import { completions } from '../lib/completion';
import { saveCsv } from '../lib/download';
import { unknownKeys } from '../lib/filter';
import { bind } from '../lib/keys';
import { formatCount } from '../lib/number';
import { paced } from '../lib/pace';
import { runPath, type Scope } from '../lib/route';
import { RunList } from '../lib/run_list';
import { changeTags, deleteRuns } from '../lib/runs';
import { DEFAULT_SORT, parseSort, writeSort } from '../lib/sort';
import { Sparks } from '../lib/sparks';
import { follow } from '../lib/stream';
import { formatSpan } from '../lib/time';
import { tellError } from '../lib/toast';

const STATES: State[] = ['running', 'stale', 'failed', 'finished', 'paused'];
const REFRESH_MS = 1000;
const startOpen = signal(false);

/** The page. */
export function RunsPage({ scope }: { scope: Scope | null }) {
  const list = useMemo(() => new RunList(), []);
  const sparks = useMemo(() => new Sparks(), []);
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
  const key = JSON.stringify(question);
  const rows = list.rows.value;
  const metric = question.metric || rows.find((r) => r.metric)?.metric?.name || 'loss';
  const selected = new Set(param('sel').split(',').filter(Boolean));
  const chosen = rows.filter((r) => selected.has(r.run_id));

  useEffect(() => {
    void list.show(question);
    at.value = 0;
  }, [key, tokenEntered.value]);
  useEffect(() => sparks.want(rows.slice(...seen.current)), [rows]);
  const refresh = useMemo(() => paced(() => list.refresh(), REFRESH_MS), []);
  useEffect(() => {
    const leave = follow('runs', () => {
      heard.value = Date.now();
      refresh.ask();
    });
    return () => {
      leave();
      refresh.end();
      sparks.end();
    };
  }, [tokenEntered.value]);
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
  const exportRuns = async (which: RunRow[]) => {
    for (const row of which) await saveCsv(row.run_id, row.run, null);
  };
  useEffect(() => {
    const move = (by: number) => () => {
      at.value = Math.max(0, Math.min(list.rows.value.length - 1, at.value + by));
    };
    const here = () => list.rows.value[at.value];
    const toggle = () => {
      const row = here();
      if (!row) return;
      const ids = new Set(param('sel').split(',').filter(Boolean));
      if (!ids.delete(row.run_id)) ids.add(row.run_id);
      select(ids);
    };
    const targets = () => {
      const ids = new Set(param('sel').split(',').filter(Boolean));
      const some = list.rows.value.filter((r) => ids.has(r.run_id));
      return some.length > 0 ? some : [here()].filter(Boolean);
    };
    const group = 'Runs';
    return bind(
      { keys: 'j', does: 'Row down', group, run: move(1) },
      { keys: 'k', does: 'Row up', group, run: move(-1) },
      { keys: 'ArrowDown', does: 'Row down', group, run: move(1) },
      { keys: 'ArrowUp', does: 'Row up', group, run: move(-1) },
      { keys: 'Space', does: 'Select the row', group, run: toggle },
      { keys: 'Enter', does: 'Open the run', group, run: () => go(here()) },
      { keys: 't', does: 'Edit tags in place', group, run: () => (editing.value = here()?.run_id ?? null) },
      { keys: 'e', does: 'Export as CSV', group, run: () => exportRuns(targets()) },
      {
        keys: 'Backspace',
        does: 'Delete the selected runs',
        group,
        run: () => {
          const ids = new Set(param('sel').split(',').filter(Boolean));
          const doomed = list.rows.value.filter((r) => ids.has(r.run_id));
          if (doomed.length > 0) remove(doomed);
        },
      },
      { keys: 'Escape', does: 'Clear the selection', group, run: () => select(new Set()) },
    );
  }, []);

  const context: CellContext = {
    now: now.value,
    zone: zone.value,
    metric,
    spark: (row) => sparks.of(row),
    editing: editing.value,
    edit: (id) => (editing.value = id),
    changeTags: (row, add, gone) => tag([row.run_id], add, gone),
  };
  const layout = columnLayout(param('cols'), scope);
  const empty = list.known.value && list.total.value === 0 && !question.filter && !question.state;
  const counts = list.counts.value;
  const all = STATES.reduce((sum, s) => sum + (counts[s] ?? 0), 0);
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
        <Segments
          label="State"
          value={question.state}
          choose={(state) => setParams({ state })}
          choices={[
            { value: '', content: `All ${formatCount(all)}` },
            ...STATES.filter((s) => s !== 'paused' || (counts.paused ?? 0) > 0).map((s) => ({
              value: s as string,
              content: (
                <>
                  <StateIcon state={s} /> {s} {formatCount(counts[s] ?? 0)}
                </>
              ),
            })),
          ]}
        />
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
            sparks.want(list.rows.peek().slice(from, to));
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
          save={() => exportRuns(chosen)}
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

function Live({ heard, rows }: { heard: number | null; rows: RunRow[] }) {
  const last = Math.max(0, ...rows.map((r) => r.last_time_ms ?? 0));
  if (!rows.some((r) => r.state === 'running') && heard === null) return null;
  return (
    <span class="live">
      <span class="dot" /> live
      {last > 0 ? ` · data age ${formatSpan(Math.max(0, Math.floor((now.value - last) / 1000)))}` : ''}
    </span>
  );
}

/** Columns from the address: `id` or `id:width`, by comma; all that make sense when it says nothing. */
function columnLayout(text: string, scope: Scope | null) {
  const given = new Map(
    text
      .split(',')
      .filter(Boolean)
      .map((piece) => piece.split(':') as [string, string | undefined]),
  );
  const usual = COLUMNS.filter((c) => c.id !== 'project' || scope === null);
  const columns = given.size > 0 ? COLUMNS.filter((c) => given.has(c.id)) : usual;
  const widths: Record<string, number> = {};
  for (const [id, width] of given) if (Number(width) > 0) widths[id] = Number(width);
  const write = (ids: string[], sizes: Record<string, number>) => {
    const standard =
      ids.length === usual.length &&
      usual.every((c) => ids.includes(c.id)) &&
      Object.keys(sizes).length === 0;
    setParams({ cols: standard ? null : ids.map((id) => (sizes[id] ? `${id}:${sizes[id]}` : id)).join(',') });
  };
  const ids = columns.map((c) => c.id);
  return {
    columns,
    widths,
    resize: (id: string, width: number | null) => {
      const sizes = { ...widths };
      if (width === null) delete sizes[id];
      else sizes[id] = width;
      write(ids, sizes);
    },
    items: COLUMNS.filter((c) => c.id !== 'run').map((c) => ({
      text: c.id,
      checked: ids.includes(c.id),
      run: () =>
        write(
          ids.includes(c.id)
            ? ids.filter((id) => id !== c.id)
            : COLUMNS.filter((o) => o.id === c.id || ids.includes(o.id)).map((o) => o.id),
          widths,
        ),
    })),
  };
}
