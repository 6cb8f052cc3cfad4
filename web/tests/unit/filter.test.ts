import { describe, expect, test } from 'vitest';
import type { RunRow } from '../../src/lib/answers';
import { completions } from '../../src/lib/completion';
import { parseToken, quoteOpen, quoteValue, splitTokens, unknownKeys } from '../../src/lib/filter';

describe('filter', () => {
  test('spaces part tokens, quotes hold them together', () => {
    expect(splitTokens('state:running  -tag:"a b" "night run"')).toEqual([
      'state:running',
      '-tag:"a b"',
      '"night run"',
    ]);
    expect(quoteOpen('tag:"a')).toBe(true);
    expect(quoteOpen('tag:"a b"')).toBe(false);
  });

  test('a token says key, order and values', () => {
    const check = (raw: string, want: object) => expect(parseToken(raw)).toMatchObject(want);
    check('state:running,stale', {
      key: 'state',
      negated: false,
      operator: '',
      values: ['running', 'stale'],
    });
    check('-tag:"a, b"', { key: 'tag', negated: true, values: ['a, b'] });
    check('loss:<=0.5', { key: 'loss', operator: '<=', values: ['0.5'] });
    check('host:*', { key: 'host', operator: 'has', values: [] });
    check('host:-', { key: 'host', operator: 'absent' });
    check('pretrain', { key: '', values: ['pretrain'] });
    check(':x', { key: '', values: [':x'] });
    check('-', { key: '', negated: false, values: ['-'] });
    check('train/loss:>1', { key: 'train/loss', operator: '>', values: ['1'] });
  });

  test('a quoted value is read back as it was', () => {
    for (const value of [
      'llm',
      'a b',
      '<img src=x onerror=alert(1)>',
      '-dash',
      'a,b',
      '*',
      '>7',
      'k:v',
      'ü',
    ]) {
      const [token, ...more] = splitTokens(`project:${quoteValue(value)}`);
      expect(more).toEqual([]);
      expect(parseToken(token)).toMatchObject({ key: 'project', operator: '', values: [value] });
    }
  });

  test('warnings name unknown keys', () => {
    expect(
      unknownKeys(['unknown key `stat`, nearest `state`', 'unknown key `zz`: no run has it', 'other']),
    ).toEqual(
      new Map([
        ['stat', 'state'],
        ['zz', ''],
      ]),
    );
  });

  test('completion offers keys, then values with their counts', () => {
    const row = (tags: string[]) =>
      ({ tags, hosts: [], run: 'r', metric: { name: 'train/loss', last: 1 } }) as unknown as RunRow;
    const rows = [row(['7b', 'base']), row(['7b'])];
    expect(completions('st', rows, {}).map((c) => c.text)).toEqual(['state:', 'started:', 'step:']);
    expect(completions('tr', rows, {}).map((c) => c.text)).toEqual(['train/loss:']);
    expect(completions('-tag:', rows, {})).toEqual([
      { text: '-tag:7b', count: 2 },
      { text: '-tag:base', count: 1 },
    ]);
    expect(completions('state:running,st', rows, { running: 1, stale: 2, failed: 0 })).toEqual([
      { text: 'state:running,stale', count: 2 },
    ]);
  });
});
