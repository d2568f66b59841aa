import { expect, test } from 'vitest';
import { Newest } from './newest';

/** A request that is answered by hand. */
function request<T>() {
  let answer!: (value: T) => void;
  return { sent: new Promise<T>((resolve) => (answer = resolve)), answer: (value: T) => answer(value) };
}

test('of several requests the answer to the newest is used, in whichever order they arrive', async () => {
  const newest = new Newest();
  const used: string[] = [];
  const [first, second] = [request<string>(), request<string>()];
  const both = [newest.take(first.sent, (text) => used.push(text)), newest.take(second.sent, (text) => used.push(text))];
  second.answer('second');
  first.answer('first');
  await Promise.all(both);
  expect(used).toEqual(['second']);
});

test('an answer after the page was left is not used', async () => {
  const newest = new Newest();
  const used: string[] = [];
  const only = request<string>();
  const done = newest.take(only.sent, (text) => used.push(text));
  newest.drop();
  only.answer('late');
  await done;
  expect(used).toEqual([]);
});

test('the failure of an earlier request is ignored, that of the newest is not', async () => {
  const newest = new Newest();
  const earlier = newest.take(Promise.reject(new Error('earlier')), () => {});
  const last = newest.take(Promise.reject(new Error('last')), () => {});
  await expect(earlier).resolves.toBeUndefined();
  await expect(last).rejects.toThrow('last');
});
