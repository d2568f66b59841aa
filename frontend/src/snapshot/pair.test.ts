import { expect, test } from 'vitest';
import type { ChannelRow, NodeRow } from '../api/types';
import { followerOf, handOverCost, lagText, nodeOfPair, pairText, type Mirror } from './pair';
import { channelKey, type ClusterSnapshot } from './snapshot';

const NOON = new Date(2026, 10, 23, 12).getTime();
const mirror = (change: Partial<Mirror> = {}): Mirror => ({ pair: 'p', member: 'a0', epoch: 3, since: NOON - 60_000, in_sync: ['a0', 'b0'], under_replicated: false, lag_bytes: 0, lag_ms: 0, ...change });

function snapshot(channels: ChannelRow[], nodes: NodeRow[] = []): ClusterSnapshot {
  return {
    version: 1,
    takenAt: NOON,
    nodes: new Map(nodes.map((row) => [row.id, row])),
    topics: new Map(),
    channels: new Map(channels.map((row) => [channelKey(row), row])),
  };
}
const channel = (...nodes: object[]): ChannelRow => ({ topic: 'orders', name: 'billing', nodes }) as ChannelRow;
const share = (node: string, clients: number, inFlight: number): object => ({ node, client_count: clients, in_flight_count: inFlight });

test('the lag is shown in bytes and time, and only if there is one', () => {
  expect(lagText(mirror())).toBe('');
  expect(lagText(mirror({ lag_bytes: 2048 }))).toBe('2.0 KiB behind');
  expect(lagText(mirror({ lag_bytes: 2048, lag_ms: 340 }))).toBe('2.0 KiB behind, for 340 ms');
  expect(pairText(mirror())).toBe('mirrored, in sync');
  expect(pairText(mirror({ lag_bytes: 10 }))).toBe('mirrored, in sync, 10 B behind');
});

test('the follower is the other member in sync', () => {
  expect(followerOf(mirror())).toBe('b0');
  expect(followerOf(mirror({ in_sync: ['a0'], under_replicated: true }))).toBeNull();
});

test('the confirmation of a hand-over counts consumers and messages in flight of the node', () => {
  const busy = snapshot([channel(share('a:1', 2, 15), share('b:1', 7, 9))]);
  expect(handOverCost(busy, 'a:1', mirror(), NOON).sentences).toEqual([
    'Member b0 will lead, and member a0 will follow. Nobody is served for some seconds.',
    '2 consumers and all producers lose their connections and have to connect again.',
    'The 15 messages in flight will be delivered again, and so may messages of the last FINs.',
    'Publishes without an answer have to be published again.',
  ]);
  const idle = handOverCost(snapshot([]), 'a:1', mirror({ in_sync: ['a0'] }), NOON);
  expect(idle.sentences.slice(0, 3)).toEqual([
    'No follower is in sync, so nothing will happen.',
    'Producers lose their connections and have to connect again.',
    'Messages of the last FINs may be delivered again.',
  ]);
  expect([idle.nodes, idle.lost]).toEqual([['a:1'], 0]);
});

test('the node that represents a pair is found by the pair, whichever member leads', () => {
  const moved = { id: 'b:1', mirror: mirror({ member: 'b0' }) } as NodeRow;
  const found = snapshot([], [{ id: 'c:1', mirror: null } as NodeRow, moved]);
  expect(nodeOfPair(found, 'p')).toBe(moved);
  expect(nodeOfPair(found, 'q')).toBeUndefined();
});
