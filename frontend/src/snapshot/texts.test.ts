import { expect, test } from 'vitest';
import { madeOnce, MAX_TEXTS } from './texts';

function counted() {
  const made: string[] = [];
  const key = madeOnce((topic, channel) => {
    made.push(`${topic}/${channel}`);
    return `${topic}/${channel}`;
  });
  return { key, made };
}

test('each text is made once, and no two channels have the same', () => {
  const { key, made } = counted();
  const all = () => [key('a', 'b'), key('a', 'c'), key('b', 'b'), key('toString', '__proto__')];
  expect(all()).toEqual(['a/b', 'a/c', 'b/b', 'toString/__proto__']);
  expect(all()).toEqual(made);
  expect(made).toHaveLength(4);
});

test('the memory is bounded', () => {
  const { key, made } = counted();
  for (let number = 0; number <= MAX_TEXTS; number++) key('t', String(number));
  made.length = 0;
  expect([key('t', String(MAX_TEXTS)), key('t', '0')]).toEqual([`t/${MAX_TEXTS}`, 't/0']);
  expect(made).toEqual(['t/0']);
});
