/** Builds the pages and holds them against their budgets. */

import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { expect, test } from 'vitest';

const KIB = 1024;

test('the first load is at most 90 KiB of JavaScript and 12 of CSS, each later page 25 of both, from this origin alone', {
  timeout: 60_000,
}, async () => {
  const built = await build({
    root: join(import.meta.dirname, '../..'),
    logLevel: 'error',
    build: { write: false },
  });
  const files = (Array.isArray(built) ? built : [built]).flatMap((b) => ('output' in b ? b.output : []));
  const size = (file: (typeof files)[number]) =>
    gzipSync(file.type === 'chunk' ? file.code : file.source).length;
  const sum = (some: typeof files) => some.reduce((all, file) => all + size(file), 0);
  const chunks = files.filter((f) => f.type === 'chunk');
  // What the page needs at once: its entry, and what that imports without waiting.
  const first = new Set(chunks.filter((c) => c.isEntry).map((c) => c.fileName));
  for (const name of first)
    for (const more of chunks.find((c) => c.fileName === name)!.imports) first.add(more);
  const later = chunks.filter((c) => !first.has(c.fileName));
  const initial = sum(chunks.filter((c) => first.has(c.fileName)));
  expect(initial).toBeGreaterThan(10 * KIB);
  expect(initial).toBeLessThanOrEqual(90 * KIB);
  expect(later.map((c) => c.name)).toContain('explore');
  const page = files.find((f) => f.fileName === 'index.html');
  const html = String(page?.type === 'asset' ? page.source : '');
  const sheets = files.filter((f) => f.fileName.endsWith('.css'));
  const css = sum(sheets.filter((f) => html.includes(f.fileName)));
  expect(css).toBeGreaterThan(1 * KIB);
  expect(css).toBeLessThanOrEqual(12 * KIB);
  // A later page brings its own sheet, which has the chunk's name.
  const rest = new Set(sheets.filter((f) => !html.includes(f.fileName)));
  for (const chunk of later) {
    const own = [...rest].filter((f) => f.fileName.startsWith(`assets/${chunk.name}-`));
    for (const sheet of own) rest.delete(sheet);
    expect(size(chunk) + sum(own), chunk.fileName).toBeLessThanOrEqual(25 * KIB);
  }
  expect([...rest].map((f) => f.fileName)).toEqual([]);
  expect(html).not.toMatch(/(src|href)="(https?:)?\/\//);
});
