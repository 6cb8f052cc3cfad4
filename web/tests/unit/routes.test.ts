import { describe, expect, test } from 'vitest';
import { parseSmooth } from '../../src/charts/view';
import { bind, bound } from '../../src/lib/keys';
import { calcPath, parseRoute, runPath, runsPath } from '../../src/lib/route';
import { clickSort, parseSort, writeSort } from '../../src/lib/sort';
import { EventParser } from '../../src/lib/stream';

describe('routes', () => {
  test('a path and its page are the same thing', () => {
    for (const scope of [
      { organization: 'acme', workspace: 'research', project: 'llm' },
      { organization: '', workspace: '', project: '' },
      { organization: '-', workspace: 'a/b', project: '<img src=x onerror=alert(1)>' },
      { organization: '%', workspace: '?#', project: '..%2F' },
    ]) {
      expect(parseRoute(runsPath(scope))).toEqual({ page: 'runs', scope });
      expect(parseRoute(runPath(scope, 'ab12', 'overview'))).toEqual({
        page: 'run',
        scope,
        runId: 'ab12',
        tab: 'overview',
      });
    }
  });

  test('short links, all runs and rubbish', () => {
    expect(parseRoute('/')).toEqual({ page: 'home' });
    expect(parseRoute('/runs')).toEqual({ page: 'runs', scope: null });
    expect(parseRoute('/explore')).toEqual({ page: 'explore' });
    expect(parseRoute('/compare')).toEqual({ page: 'compare' });
    expect(parseRoute('/alerts')).toEqual({ page: 'alerts' });
    expect(parseRoute('/remediation')).toEqual({ page: 'remediation' });
    expect(parseRoute(calcPath())).toEqual({ page: 'calc', tool: null });
    expect(parseRoute(calcPath('a/b'))).toEqual({ page: 'calc', tool: 'a/b' });
    expect(parseRoute('/r/ab12')).toEqual({ page: 'short', runId: 'ab12' });
    for (const path of [
      '/o/a',
      '/x',
      '/explore/x',
      '/o/a/b/c/zzz',
      '/r/a/b',
      '/alerts/x',
      '/calc/a/b',
      '/o/%E0%A4%A/b/c/d',
    ])
      expect(parseRoute(path).page).toBe('missing');
  });
});

describe('sort', () => {
  test('a click sorts by one, Shift by a second', () => {
    const start = parseSort('');
    expect(start).toEqual([{ key: 'started', descending: true }]);
    const byLoss = clickSort(start, 'loss', false, false);
    expect(writeSort(byLoss)).toBe('loss');
    expect(writeSort(clickSort(byLoss, 'loss', false, false))).toBe('-loss');
    const two = clickSort(byLoss, 'step', true, true);
    expect(writeSort(two)).toBe('loss,-step');
    expect(writeSort(clickSort(two, 'step', true, true))).toBe('loss,step');
    expect(writeSort(clickSort(two, 'started', false, true))).toBe('');
  });
});

describe('keys', () => {
  test('a later binding shadows an earlier one until it is taken back', () => {
    const doing = (does: string) => ({ keys: '/', does, group: 'g', run: () => {} });
    const first = bind(doing('page'));
    const second = bind(doing('charts'));
    expect(bound().map((b) => b.does)).toEqual(['charts']);
    second();
    expect(bound().map((b) => b.does)).toEqual(['page']);
    first();
    expect(bound()).toEqual([]);
  });
});

describe('smoothing in the address', () => {
  test('only what the server can do is read', () => {
    expect(parseSmooth('ema:0.9')).toEqual({ kind: 'ema', weight: 0.9 });
    expect(parseSmooth('window:21')).toEqual({ kind: 'window', size: 21 });
    for (const text of ['', 'ema:1', 'ema:x', 'window:20', 'window:-3', 'gauss:3'])
      expect(parseSmooth(text)).toBeNull();
  });
});

describe('event stream', () => {
  test('events come whole, however the bytes are cut', () => {
    const text =
      ': hello\nid: 7\nevent: run\ndata: {"a":\ndata: 1}\n\nid: 8\r\nevent: ping\r\ndata: {}\r\n\r\n';
    const want = [
      { id: '7', event: 'run', data: '{"a":\n1}' },
      { id: '8', event: 'ping', data: '{}' },
    ];
    for (let size = 1; size <= text.length; size++) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
      expect(events).toEqual(want);
    }
  });
});
