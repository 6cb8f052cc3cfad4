import { expect, test } from 'vitest';
import { neededLabels, Palette, SLOTS, slotDash, tellingLabels, varyingLabels } from '../../src/lib/colour';

test('the first ten things get ten colours, and what has no name the first', () => {
  const palette = new Palette();
  expect(palette.slot('')).toBe(0);
  const slots = Array.from({ length: SLOTS - 1 }, (_, at) => palette.slot(`host-${at}`));
  expect(new Set(slots).size).toBe(SLOTS - 1);
  expect(slots).not.toContain(0);
  expect(palette.slot('host-3')).toBe(slots[3]);
  expect(palette.slot('one more')).toBe(SLOTS);
  expect(slotDash(palette.slot('one more'))).toEqual([2, 2]);
});

test('the same things in the same order have the same colours', () => {
  const colours = () => {
    const palette = new Palette();
    return ['a', 'b', 'c', 'd'].map((key) => palette.slot(key));
  };
  expect(colours()).toEqual(colours());
});

test('labels vary when values differ; being without one counts only when asked', () => {
  const sets: Record<string, string>[] = [{ host: 'a', rank: '0' }, { host: 'a', rank: '1' }, {}];
  expect(varyingLabels(sets, false)).toEqual(['rank']);
  expect(varyingLabels(sets, true)).toEqual(['host', 'rank']);
  expect(varyingLabels([], true)).toEqual([]);
});

test('a series without the label that another of its metric has gets a colour of its own', () => {
  const bare = { display: 'loss', labels: {} };
  const split = { display: 'loss', labels: { split: 'val' } };
  const machine = { display: 'system/cpu/utilization', labels: { host: 'a' } };
  expect(tellingLabels([bare, split, machine])).toEqual(['split']);
  const process = (rank: string, instance: string) => ({ rank, instance });
  const keys = ['instance', 'rank'];
  expect(neededLabels([process('0', 'a'), process('1', 'b')], keys)).toEqual(['rank']);
  expect(neededLabels([process('0', 'a'), process('0', 'b'), process('1', 'c')], keys)).toEqual(keys);
  expect(neededLabels([{ gpu: '0' }, { gpu: '1' }], ['gpu'])).toEqual(['gpu']);
  expect(tellingLabels([bare, machine])).toEqual([]);
  expect(tellingLabels([])).toEqual([]);
});
