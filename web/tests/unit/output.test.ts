/** The end of what a command wrote, as a page shows it. */
import { expect, test } from 'vitest';
import { linesOf, tailsOf } from '../../src/components/output_panel';

test('lines are what a terminal would have left, and hide nothing', () => {
  expect(linesOf('a\n\tb\n')).toEqual(['a', '    b']);
  expect(linesOf('  1 %\r 50 %\r100 %\r\ndone')).toEqual(['100 %', 'done']);
  expect(linesOf('\u001b[1;31mred\u001b[0m \u202e<b>')).toEqual(['red \\u202e<b>']);
  expect(linesOf('')).toEqual(['']);
});

test('streams that hold something are shown, ranks in order, what was printed before the errors', () => {
  const tails = tailsOf({
    'command/rank-10/stdout_tail': 'ten',
    'command/rank-2/stderr_tail': 'oops',
    'command/rank-2/stdout_tail': 'two',
    'command/stderr_tail': '',
    'command/stdout_tail': 7,
    'config/stdout_tail': 'not a command',
  });
  expect(tails).toEqual([
    ['rank 2, stdout', 'two'],
    ['rank 2, stderr', 'oops'],
    ['rank 10, stdout', 'ten'],
  ]);
  expect(tailsOf({ 'command/stderr_tail': 'e', 'command/stdout_tail': 'o' }).map(([title]) => title)).toEqual(
    ['stdout', 'stderr'],
  );
});
