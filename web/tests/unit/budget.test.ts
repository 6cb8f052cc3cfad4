/** Builds the pages and holds them against their budgets. */

import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { expect, test } from 'vitest';

const KIB = 1024;

test('the first load is at most 90 KiB of JavaScript and 12 KiB of CSS, from this origin alone', {
  timeout: 60_000,
}, async () => {
  const built = await build({
    root: join(import.meta.dirname, '../..'),
    logLevel: 'error',
    build: { write: false },
  });
  const files = (Array.isArray(built) ? built : [built]).flatMap((b) => ('output' in b ? b.output : []));
  const size = (end: string) =>
    files
      .filter((f) => f.fileName.endsWith(end))
      .reduce((sum, f) => sum + gzipSync(f.type === 'chunk' ? f.code : f.source).length, 0);
  expect(size('.js')).toBeGreaterThan(10 * KIB);
  expect(size('.js')).toBeLessThanOrEqual(90 * KIB);
  expect(size('.css')).toBeGreaterThan(1 * KIB);
  expect(size('.css')).toBeLessThanOrEqual(12 * KIB);
  const page = files.find((f) => f.fileName === 'index.html');
  expect(String(page?.type === 'asset' ? page.source : '')).not.toMatch(/(src|href)="(https?:)?\/\//);
});
