/** Sheets of pages stay loaded once a page was open: what they style has to be their own. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const STYLES = join(import.meta.dirname, '../../src/styles');
/** Loaded with every page. */
const FIRST = ['tokens', 'base', 'shell', 'runs', 'charts', 'health'];
/** Roots of pages that two sheets are about. */
const SHARED = ['gpu-page'];

/** The classes that selectors of a sheet begin with. */
function leads(sheet: string): Set<string> {
  const text = readFileSync(join(STYLES, `${sheet}.css`), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
  const selectors = [...text.matchAll(/([^{}]+)\{/g)].flatMap(([, all]) => all.split(/,(?![^(]*\))/));
  return new Set(selectors.flatMap((one) => /^(?::where\()?\.([\w-]+)/.exec(one.trim())?.[1] ?? []));
}

test('no sheet of a page styles what another page has under the same name', () => {
  const sheets = readdirSync(STYLES).map((name) => name.replace(/\.css$/, ''));
  const places = new Map<string, string[]>();
  for (const sheet of sheets.filter((name) => !FIRST.includes(name)))
    for (const lead of leads(sheet)) places.set(lead, [...(places.get(lead) ?? []), sheet]);
  expect(places.size).toBeGreaterThan(50);
  const twice = [...places].filter(([lead, of]) => of.length > 1 && !SHARED.includes(lead));
  expect(twice).toEqual([]);
  // Variants of what all pages have bear a name of their own.
  const common = new Set(FIRST.flatMap((sheet) => [...leads(sheet)]));
  const plain = [...places].filter(([lead]) => common.has(lead));
  expect(plain.map(([lead]) => lead).sort()).toEqual(['badge', 'card', 'verdict-card']);
});
