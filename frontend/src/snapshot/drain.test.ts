import { expect, test } from 'vitest';
import type { ChannelRow, NodeRow, TopicRow } from '../api/types';
import { drainCost, drainProgress, leftText, remainingOn } from './drain';
import { channelKey, type ClusterSnapshot } from './snapshot';

const NOON = new Date(2026, 10, 23, 12).getTime();
const share = (change: object = {}) => ({ node: 'a:1', paused: false, depth: 0, in_flight_count: 0, deferred_count: 0, dead_count: 0, client_count: 1, ...change });
const topic = (name: string, ...nodes: object[]): TopicRow => ({ name, nodes }) as TopicRow;
const channel = (of: string, name: string, ...nodes: object[]): ChannelRow => ({ topic: of, name, nodes }) as ChannelRow;

function snapshot(topics: TopicRow[], channels: ChannelRow[]): ClusterSnapshot {
  return {
    version: 1,
    takenAt: NOON,
    nodes: new Map(),
    topics: new Map(topics.map((row) => [row.name, row])),
    channels: new Map(channels.map((row) => [channelKey(row), row])),
  };
}

const busy = snapshot(
  [topic('orders', share({ depth: 4 }), share({ node: 'b:1', depth: 900 })), topic('lonely', share({ depth: 7 })), topic('held', share({ depth: 2, paused: true }))],
  [
    channel('orders', 'billing', share({ depth: 1000, in_flight_count: 20, deferred_count: 3, dead_count: 50, client_count: 2 }), share({ node: 'b:1', depth: 900 })),
    channel('orders', 'archive', share({ depth: 10, client_count: 0 })),
    channel('held', 'c', share({ depth: 5, paused: true })),
  ],
);
const idle = snapshot([topic('orders', share())], [channel('orders', 'billing', share({ client_count: 0 }))]);
const drain = (change: object = {}): NonNullable<NodeRow['drain']> => ({ since: NOON - 10_000, ends_at: NOON + 590_000, takes_publishes: false, messages: 1051, ...change });

test('what a node has to finish is counted without dead messages and without other nodes', () => {
  expect(remainingOn(busy, 'a:1')).toEqual({ messages: 1051, stuck: 7 + 2 + 10 + 5, clients: 3 });
  expect(remainingOn(idle, 'a:1')).toEqual({ messages: 0, stuck: 0, clients: 0 });
});

test('the confirmation says when the process ends, what becomes of clients and publishes, and what keeps the node', () => {
  const { sentences, lost, nodes } = drainCost(busy, 'a:1', 600, false, NOON);
  expect(sentences).toEqual([
    'Its process ends when its 1,051 messages are finished, at the latest at 12:10:00.',
    'It leaves the registries at once: clients that look it up do not find it, and 3 clients stay connected.',
    'It refuses publishes: producers have to publish to another node.',
    '24 messages are paused or have no client: what is left at the deadline stays on the disk, and the next start delivers it.',
  ]);
  expect([lost, nodes]).toEqual([0, ['a:1']]);
});

test('without a deadline, the node waits for messages that no client takes', () => {
  const { sentences } = drainCost(busy, 'a:1', 0, true, NOON);
  expect(sentences[0]).toBe('Its process ends when its 1,051 messages are finished.');
  expect(sentences[2]).toBe('It takes publishes until then.');
  expect(sentences[3]).toMatch(/have no client: the process does not end before they are finished or deleted\.$/);
});

test('an empty node ends at once, which the confirmation says', () => {
  expect(drainCost(idle, 'a:1', 600, false, NOON).sentences.slice(0, 2)).toEqual([
    'No messages are left, so its process ends at once.',
    'It leaves the registries at once: clients that look it up do not find it, and none is connected.',
  ]);
});

test('a node that drains shows how many messages are left, and its end', () => {
  expect([leftText(1051), leftText(1)]).toEqual(['1,051 messages are left', '1 message is left']);
  expect(drainProgress(idle, 'a:1', drain())).toEqual([
    'It has been draining since 11:59:50. Its process ends when no messages are left, at the latest at 12:09:50 (in 9 m 50 s).',
    'It refuses publishes: producers have to publish to another node.',
    'No clients are connected.',
  ]);
  expect(drainProgress(busy, 'a:1', drain({ ends_at: null, takes_publishes: true })).slice(0, 3)).toEqual([
    'It has been draining since 11:59:50. Its process ends when no messages are left.',
    'It takes publishes until then.',
    '3 clients are connected.',
  ]);
});
