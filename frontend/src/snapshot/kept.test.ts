import { expect, test } from 'vitest';
import { kept, MOST_KEPT } from './kept';

test('each text is made once, and no two channels have the same', () => {
  const made: string[] = [];
  const key = kept((topic, channel) => {
    made.push(`${topic}/${channel}`);
    return `${topic}/${channel}`;
  });
  for (let round = 0; round < 2; round++) {
    expect([key('a', 'b'), key('a', 'c'), key('b', 'b'), key('toString', '__proto__')]).toEqual(['a/b', 'a/c', 'b/b', 'toString/__proto__']);
  }
  expect(made).toEqual(['a/b', 'a/c', 'b/b', 'toString/__proto__']);
});

test('more channels than are kept still get their texts', () => {
  const key = kept((topic, channel) => `${topic}/${channel}`);
  for (let number = 0; number <= MOST_KEPT; number++) key('t', String(number));
  expect([key('t', '0'), key('t', String(MOST_KEPT))]).toEqual(['t/0', `t/${MOST_KEPT}`]);
});
