/** Which columns the run list shows, and how wide: from the address and back to it. */
import { COLUMNS } from '../components/run_columns';
import { setParams } from '../lib/address';
import type { Scope } from '../lib/route';

/** Columns from the address: `id` or `id:width`, by comma; the usual ones that make sense when it says nothing. */
export function columnLayout(text: string, scope: Scope | null) {
  const given = new Map(
    text
      .split(',')
      .filter(Boolean)
      .map((piece) => piece.split(':') as [string, string | undefined]),
  );
  const usual = COLUMNS.filter((c) => !c.extra && (c.id !== 'project' || scope === null));
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
