/** Keys of the run list. */
import type { Signal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';
import { param } from '../lib/address';
import type { RunRow } from '../lib/answers';
import { bind } from '../lib/keys';
import type { RunList } from '../lib/run_list';

/** What the keys act on, and what they do. */
export interface RunKeys {
  list: RunList;
  /** The row that keys act on. */
  at: Signal<number>;
  /** The run whose tags are edited. */
  editing: Signal<string | null>;
  go: (row: RunRow | undefined) => void;
  select: (ids: Set<string>) => void;
  compare: () => void;
  save: (rows: RunRow[]) => void;
  remove: (rows: RunRow[]) => void;
}

/** Ids of the selected runs, from the address. */
export function selectedIds(): Set<string> {
  return new Set(param('sel').split(',').filter(Boolean));
}

/** Binds them while the list is shown. */
export function useRunKeys({ list, at, editing, go, select, compare, save, remove }: RunKeys): void {
  useLayoutEffect(() => {
    const here = () => list.rows.value[at.value];
    const move = (by: number) => () => {
      at.value = Math.max(0, Math.min(list.rows.value.length - 1, at.value + by));
    };
    const chosen = () => {
      const ids = selectedIds();
      return list.rows.value.filter((r) => ids.has(r.run_id));
    };
    const toggle = () => {
      const row = here();
      const ids = selectedIds();
      if (row && !ids.delete(row.run_id)) ids.add(row.run_id);
      select(ids);
    };
    const group = 'Runs';
    return bind(
      { keys: 'j', does: 'Row down', group, run: move(1) },
      { keys: 'k', does: 'Row up', group, run: move(-1) },
      { keys: 'ArrowDown', does: 'Row down', group, run: move(1) },
      { keys: 'ArrowUp', does: 'Row up', group, run: move(-1) },
      { keys: 'Space', does: 'Select the row', group, run: toggle },
      { keys: 'Enter', does: 'Open the run', group, run: () => go(here()) },
      {
        keys: 'c',
        does: 'Compare the selected runs',
        group,
        run: () => selectedIds().size > 0 && compare(),
      },
      { keys: 't', does: 'Edit tags in place', group, run: () => (editing.value = here()?.run_id ?? null) },
      {
        keys: 'e',
        does: 'Export as CSV',
        group,
        run: () => save(chosen().length ? chosen() : [here()].filter(Boolean)),
      },
      {
        keys: 'Backspace',
        does: 'Delete the selected runs',
        group,
        run: () => chosen().length > 0 && remove(chosen()),
      },
      { keys: 'Escape', does: 'Clear the selection', group, run: () => select(new Set()) },
    );
  }, [list]);
}
