import { describe, expect, test } from 'vitest';
import type { Rule } from '../../src/alerts/answers';
import { savingOf } from '../../src/alerts/rule_save';

const rule = (name: string, file: string): Rule => ({
  name,
  file,
  group: 'g',
  interval: 60,
  query: 'up',
  type: 'alerting',
  health: 'ok',
});

describe('where a rule is saved', () => {
  test('a new one gets a file of its name, and stands in for nothing', () => {
    expect(savingOf(null, 'TooHot', [])).toEqual({
      file: 'TooHot',
      own: false,
      replaces: undefined,
      refused: '',
    });
    expect(savingOf(null, '__a b:c', []).file).toBe('a_b_c');
    expect(savingOf(null, 'é', []).file).toBe('rule');
    expect(savingOf(null, 'a'.repeat(80), []).file).toHaveLength(64);
  });

  test('one of another file is replaced while it has its name', () => {
    const hot = rule('Hot', 'starter/gpu.yml');
    expect(savingOf(hot, 'Hot', [hot])).toMatchObject({ file: 'Hot', replaces: ['Hot'], refused: '' });
    expect(savingOf(hot, 'Hotter', [hot])).toMatchObject({ file: 'Hotter', replaces: undefined });
    expect(savingOf(hot, 'Hot', [hot, rule('Hot', 'other.yml')]).refused).toContain('2 rules');
  });

  test('a saved one stays in its file, unless others are in it', () => {
    const hot = rule('Hot', 'saved/heat.yml');
    expect(savingOf(hot, 'Hotter', [hot])).toMatchObject({ file: 'heat.yml', own: true, refused: '' });
    expect(savingOf(hot, 'Hot', [hot, rule('Cold', 'saved/heat.yml')]).refused).toContain('rules save');
  });
});
