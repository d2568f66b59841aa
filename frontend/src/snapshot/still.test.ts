import { expect, test } from 'vitest';
import { whenStill } from './still';

/** A browser whose frames are 10 ms long. */
function browserOf() {
  let waiting: (() => void)[] = [];
  let scrolled = (): void => {};
  let now = 0;
  const schedule = whenStill({ frame: (then) => void waiting.push(then), onScroll: (listener) => (scrolled = listener), now: () => now });
  const pass = (ms: number, scrolls = false): void => {
    for (const until = now + ms; now < until; ) {
      now += 10;
      if (scrolls) scrolled();
      const due = waiting;
      waiting = [];
      for (const then of due) then();
    }
  };
  return { schedule, pass };
}

test('a page that rests is drawn in the next frame', () => {
  const { schedule, pass } = browserOf();
  let drawn = 0;
  schedule(() => drawn++);
  expect(drawn).toBe(0);
  pass(10);
  expect(drawn).toBe(1);
});

test('a page that is scrolled is drawn once, when that is over', () => {
  const { schedule, pass } = browserOf();
  let drawn = 0;
  pass(50, true);
  schedule(() => drawn++);
  pass(500, true);
  expect(drawn).toBe(0);
  pass(200);
  expect(drawn).toBe(1);
  pass(5000);
  expect(drawn).toBe(1);
});

test('a page that is scrolled without end is drawn nevertheless, before its figures count as stale', () => {
  const { schedule, pass } = browserOf();
  let drawn = 0;
  pass(10, true);
  schedule(() => drawn++);
  pass(2500, true);
  expect(drawn).toBe(1);
});
