import { expect, test } from 'vitest';
import { sinceOf } from './rewind';

const NOW = new Date(2026, 10, 22, 12, 0);

test('a choice counts back from now', () => {
  expect(sinceOf('1h', '', NOW)).toEqual({ at: new Date(2026, 10, 22, 11, 0) });
  expect(sinceOf('7d', '', NOW)).toEqual({ at: new Date(2026, 10, 15, 12, 0) });
});

test('a point in time is in the viewer’s zone', () => {
  expect(sinceOf('at', '2026-11-22T06:30:15', NOW)).toEqual({ at: new Date(2026, 10, 22, 6, 30, 15) });
});

test.each(['', 'soon', '2026-11-22T12:00:01'])('the time “%s” is refused with a reason', (typed) => {
  expect(sinceOf('at', typed, NOW)).toEqual({ fault: expect.stringMatching(/\w/) as string });
});
