/** The virtual table of runs: only the rows on the screen are in the page. */
import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { RunRow } from '../lib/answers';
import { clickSort, type SortKey } from '../lib/sort';
import type { CellContext, Column } from './run_columns';

/** Height of a row, CSS pixels. */
export const ROW = 28;
const OVERSCAN = 10;

/** What the table needs. */
export interface RunTableProps {
  rows: RunRow[];
  /** Rows that exist, loaded or not. */
  matching: number;
  columns: Column[];
  widths: Record<string, number>;
  resize: (id: string, width: number | null) => void;
  context: CellContext;
  sort: SortKey[];
  setSort: (keys: SortKey[]) => void;
  selected: Set<string>;
  select: (ids: Set<string>) => void;
  /** The row that keys act on. */
  at: number;
  setAt: (at: number) => void;
  open: (row: RunRow) => void;
  /** Tells which rows are on the screen. */
  seen: (from: number, to: number) => void;
}

/** Rows on the screen, for other parts of the page. */
export const rowsSeen = signal<[from: number, to: number]>([0, 0]);

const CHECKBOX = 40;

/** The grid's columns, and how narrow all of them can be. */
function layout(columns: Column[], widths: Record<string, number>) {
  const each = columns.map((c) => {
    const width = widths[c.id] ?? c.width;
    return c.grows && !widths[c.id] ? `minmax(${width}px, 1fr)` : `${width}px`;
  });
  const least = columns.reduce((sum, c) => sum + (widths[c.id] ?? c.width), CHECKBOX);
  return { '--columns': `${CHECKBOX}px ${each.join(' ')}`, '--least': `${least}px` };
}

/** The table. */
export function RunTable(props: RunTableProps) {
  const { rows, matching, columns, selected, at } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [window_, setWindow] = useState<[number, number]>([0, 40]);
  const measure = () => {
    const box = scroller.current!;
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - OVERSCAN);
    const to = Math.ceil((box.scrollTop + box.clientHeight) / ROW) + OVERSCAN;
    setWindow((old) => (old[0] === from && old[1] === to ? old : [from, to]));
    props.seen(Math.floor(box.scrollTop / ROW), to - OVERSCAN);
  };
  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(scroller.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(measure, [rows]);
  useEffect(() => {
    const box = scroller.current!;
    const top = at * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW * 2 > box.scrollTop + box.clientHeight)
      box.scrollTop = top + ROW * 2 - box.clientHeight;
  }, [at]);
  const [from, to] = window_;
  const shown = rows.slice(from, to);
  const all = rows.length > 0 && rows.every((r) => selected.has(r.run_id));
  const toggle = (id: string) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    props.select(next);
  };
  return (
    <div
      class="run-table"
      ref={scroller}
      role="grid"
      tabIndex={0}
      aria-label="Runs"
      aria-rowcount={matching + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable
      aria-activedescendant={rows[at] ? `run-${rows[at].run_id}` : undefined}
      style={layout(columns, props.widths)}
      onScroll={measure}
    >
      <div class="head" role="row" aria-rowindex={1}>
        <span role="columnheader">
          <input
            type="checkbox"
            aria-label="Select all loaded runs"
            checked={all}
            onChange={() => props.select(all ? new Set() : new Set(rows.map((r) => r.run_id)))}
          />
        </span>
        {columns.map((column) => (
          <HeadCell key={column.id} column={column} table={props} />
        ))}
      </div>
      <div class="rows" role="rowgroup" style={{ height: `${matching * ROW}px` }}>
        {shown.map((row, offset) => {
          const index = from + offset;
          return (
            <div
              key={row.run_id}
              id={`run-${row.run_id}`}
              class={index === at ? 'row at' : 'row'}
              role="row"
              aria-rowindex={index + 2}
              aria-selected={selected.has(row.run_id)}
              style={{ top: `${index * ROW}px` }}
              onClick={() => props.setAt(index)}
              onDblClick={() => props.open(row)}
            >
              <span role="gridcell">
                <input
                  type="checkbox"
                  tabIndex={-1}
                  aria-label={`Select ${row.run}`}
                  checked={selected.has(row.run_id)}
                  onChange={() => toggle(row.run_id)}
                />
              </span>
              {columns.map((column) => (
                <span
                  role="gridcell"
                  key={column.id}
                  class={column.number ? `number c-${column.id}` : `c-${column.id}`}
                >
                  {column.cell(row, props.context)}
                </span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function HeadCell({ column, table }: { column: Column; table: RunTableProps }) {
  const title = column.title(table.context);
  const key = column.sort === 'metric' ? table.context.metric : column.sort;
  const place = table.sort.findIndex((k) => k.key === key);
  const order = place < 0 ? 'none' : table.sort[place].descending ? 'descending' : 'ascending';
  const drag = (event: PointerEvent) => {
    event.preventDefault();
    const cell = (event.currentTarget as HTMLElement).parentElement!;
    const [x, width] = [event.clientX, cell.offsetWidth];
    const move = (next: PointerEvent) =>
      table.resize(column.id, Math.max(48, Math.round(width + next.clientX - x)));
    const up = () => {
      document.removeEventListener('pointermove', move);
      document.removeEventListener('pointerup', up);
    };
    document.addEventListener('pointermove', move);
    document.addEventListener('pointerup', up);
  };
  return (
    <span role="columnheader" aria-sort={key ? order : undefined} class={column.number ? 'number' : ''}>
      {key ? (
        <button
          type="button"
          tabIndex={-1}
          title={`Sort by ${title}; Shift for a second key`}
          onClick={(e) =>
            table.setSort(clickSort(table.sort, key, e.shiftKey, column.number || key === 'started'))
          }
        >
          {title}
          {place >= 0 && (
            <span class="arrow" aria-hidden="true">
              {order === 'descending' ? '↓' : '↑'}
              {table.sort.length > 1 ? place + 1 : ''}
            </span>
          )}
        </button>
      ) : (
        title
      )}
      <span
        class="resize"
        aria-hidden="true"
        onPointerDown={drag}
        onDblClick={() => table.resize(column.id, null)}
      />
    </span>
  );
}
