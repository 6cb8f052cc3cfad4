import { expect, test } from 'vitest';
import { forgetView, parseViews, sameView, saveView, views } from '../../src/lib/views';

test('a view is kept under its name, replaced and forgotten', () => {
  saveView({ name: 'b', params: { f: 'tag:x', sort: 'loss' } });
  saveView({ name: 'a', params: { state: 'failed' } });
  saveView({ name: 'b', params: { f: 'tag:y' } });
  expect(views.value.map((v) => v.name)).toEqual(['a', 'b']);
  expect(parseViews(window.localStorage.getItem('truegauge.views'))).toEqual(views.value);
  expect(views.value[1].params).toEqual({ f: 'tag:y' });
  forgetView('a');
  expect(views.value.map((v) => v.name)).toEqual(['b']);
});

test('what is stored by others is no view', () => {
  for (const text of [null, '', '{', '{}', '[1,null,{"name":1}]'])
    expect(parseViews(text), String(text)).toEqual([]);
  expect(parseViews('[{"name":"x","params":{"f":1,"evil":"y","sort":"loss"}}]')).toEqual([
    { name: 'x', params: { sort: 'loss' } },
  ]);
  expect(parseViews('[{"name":"x"}]')).toEqual([{ name: 'x', params: {} }]);
});

test('views are the same when they show the same', () => {
  expect(sameView({ f: 'a', state: '' }, { f: 'a' })).toBe(true);
  expect(sameView({ f: 'a' }, { f: 'b' })).toBe(false);
});
