import { expect, test } from 'vitest';
import type { DeadCount } from '../api/types';
import { byReason, deadCost, rateOf, reasonOfOne } from './dead';

type Part = DeadCount['parts'][number];
const part = (node: string, matching: number, more: Partial<Part> = {}): Part => ({
  topic: 'orders',
  channel: 'billing',
  node,
  dead: matching,
  by_reason: { attempts: matching },
  matching,
  exact: true,
  error: '',
  ...more,
});
const found = (...parts: Part[]): DeadCount => ({ counted_at: 0, parts });

test('a requeue says how many messages, of how many channels and nodes, and loses none', () => {
  const cost = deadCost('requeue', found(part('a:1', 1200), part('b:1', 4), part('b:1', 3, { topic: 'emails' })), 0, 0);
  expect(cost.sentences[0]).toBe('1,207 dead messages of 2 channels on 2 nodes are requeued.');
  expect(cost.sentences).toContain('They are ready at once.');
  expect(cost).toMatchObject({ lost: 0, nodes: ['a:1', 'b:1'], silent: [] });
});

test('with a rate, the last message of the node with the most comes after its due time', () => {
  const { sentences } = deadCost('requeue', found(part('a:1', 1201), part('b:1', 4)), 100, 0);
  expect(sentences).toContain('Each node makes 100 of each channel ready per second, the last after 12.0 s.');
});

test('a removal loses the messages', () => {
  const cost = deadCost('remove', found(part('a:1', 1)), 0, 0);
  expect(cost.sentences[0]).toBe('1 dead message of 1 channel on node a:1 is removed.');
  expect(cost.lost).toBe(1);
});

test('a node that does not answer is named, and an upper limit is called so', () => {
  const cost = deadCost('remove', found(part('a:1', 9000, { exact: false }), part('b:1', 0, { dead: null, exact: false, error: 'no answer within 5 s' })), 0, 0);
  expect(cost.sentences[0]).toBe('At most 9,000 dead messages of 1 channel on node a:1 are removed.');
  expect(cost.silent).toEqual(['b:1: unknown, no answer within 5 s. The job asks it too.']);
  expect(deadCost('requeue', found(part('a:1', 5), part('b:1', 0, { error: 'down', exact: false })), 0, 0).sentences[0]).toMatch(/^5 dead messages/);
});

test('without a match there is nothing to do', () => {
  expect(deadCost('requeue', found(), 0, 0)).toMatchObject({ sentences: ['No dead message matches.'], lost: 0 });
});

test('a rate is a whole number of messages, and an empty one is all at once', () => {
  expect(['', ' 100 ', '1,000', '1000000'].map(rateOf)).toEqual([0, 100, 1000, 1_000_000]);
  expect(['0', '-1', '1.5', 'fast', '1000001'].map(rateOf)).toEqual([null, null, null, null, null]);
});

test('reasons are named, and unknown ones are shown as they are', () => {
  expect(byReason({ attempts: 1200, operator: 1 })).toBe('1,200 attempts, 1 operator');
  expect(reasonOfOne('attempts')).toBe('its deliveries failed too often');
  expect(reasonOfOne('moonlight')).toBe('moonlight');
});
