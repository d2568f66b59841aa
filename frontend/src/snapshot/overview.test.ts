import { expect, test } from 'vitest';
import type { ChannelRow, NodeRow, TopicRow } from '../api/types';
import { nameFault } from './names';
import { attentionOf, busiest, fastestGrowing, isAllFinished, largestBacklog, mostRetried } from './overview';
import { channelKey, totalsOf, type ClusterSnapshot } from './snapshot';

const node = (id: string, change: Partial<NodeRow> = {}): NodeRow =>
  ({ id, state: 'up', health: 'OK', error: null, ...change }) as NodeRow;
const topic = (name: string, change: Partial<TopicRow> = {}): TopicRow =>
  ({ name, paused: false, depth: 0, publish_rate: 10, emptied_rate: 0.5, oldest_age_ms: null, nodes: [{ node: 'a:1' }, { node: 'b:1' }], ...change }) as TopicRow;
const channel = (of: string, name: string, change: Partial<ChannelRow> = {}): ChannelRow =>
  ({
    topic: of,
    name,
    paused: false,
    depth: 0,
    in_flight_count: 0,
    deferred_count: 0,
    client_count: 1,
    finish_rate: 5,
    emptied_rate: 1,
    rewound_rate: 2,
    timeout_rate: 0,
    nodes: [{ node: 'a:1' }],
    ...change,
  }) as ChannelRow;

function snapshot(nodes: NodeRow[], topics: TopicRow[], channels: ChannelRow[]): ClusterSnapshot {
  return {
    version: 1,
    takenAt: 0,
    nodes: new Map(nodes.map((row) => [row.id, row])),
    topics: new Map(topics.map((row) => [row.name, row])),
    channels: new Map(channels.map((row) => [channelKey(row), row])),
  };
}

const shop = snapshot(
  [node('a:1'), node('b:1', { state: 'down', error: 'connection refused' })],
  [topic('orders', { depth: 7 }), topic('emails')],
  [
    channel('orders', 'billing', { depth: 100, in_flight_count: 3, deferred_count: 2, client_count: 4 }),
    channel('orders', 'archive', { depth: 50, client_count: 0 }),
    channel('emails', 'send', { timeout_rate: 2 }),
  ],
);

test('all is finished only if nothing waits, is in flight or is deferred', () => {
  const finished = (...channels: ChannelRow[]): boolean => isAllFinished(snapshot([node('a:1')], [topic('orders')], channels));
  expect(finished(channel('orders', 'billing'))).toBe(true);
  for (const left of [{ depth: 1 }, { in_flight_count: 1 }, { deferred_count: 1 }]) expect(finished(channel('orders', 'billing', left))).toBe(false);
  expect(isAllFinished(snapshot([node('a:1')], [topic('orders', { depth: 1 })], []))).toBe(false);
});

test('the cluster’s totals include the depths of topics and channels', () => {
  expect(totalsOf(shop)).toEqual({
    publishRate: 20,
    finishRate: 15,
    emptiedRate: 4,
    rewoundRate: 6,
    depth: 157,
    inFlight: 3,
    clients: 5,
    nodesUp: 1,
    nodesDown: 1,
  });
});

test('unknown rates are not shown as zero', () => {
  expect(totalsOf(snapshot([], [topic('a', { publish_rate: null })], [])).publishRate).toBeNull();
});

test('without topics, the rates are zero', () => {
  expect(totalsOf(snapshot([], [], []))).toMatchObject({ publishRate: 0, finishRate: 0 });
});

test('topics are ranked by what waits in them and their channels; idle ones are left out', () => {
  expect(largestBacklog(shop, 5)).toEqual([{ topic: 'orders', value: 157 }]);
});

test('topics that do not grow are not among the fastest growing', () => {
  const slopes: Record<string, number | null> = { orders: -4, emails: 2.5 };
  expect(fastestGrowing(shop, (name) => slopes[name] ?? null, 5)).toEqual([{ topic: 'emails', value: 2.5 }]);
});

test('a rate that is shown as 0 is not ranked', () => {
  expect(fastestGrowing(shop, () => 0.04, 5)).toEqual([]);
  expect(busiest(snapshot([], [topic('a', { publish_rate: 0.04 })], []), 5)).toEqual([]);
});

test('problems: nodes down first, then backlogs without clients and timeouts', () => {
  expect(attentionOf(shop).map((item) => [item.what, item.name])).toEqual([
    ['down', 'b:1'],
    ['no clients', 'orders / archive'],
    ['timing out', 'emails / send'],
  ]);
});

test('the node that went down most recently comes first', () => {
  const nodes = [10, 30, 20].map((since) => node(`n${since}:1`, { state: 'down', down_since: since, error: 'refused' }));
  expect(attentionOf(snapshot(nodes, [], [])).map((item) => item.name)).toEqual(['n30:1', 'n20:1', 'n10:1']);
});

test('problems of topics and channels are in order of their backlog', () => {
  const channels = [1, 300, 20].map((depth) => channel('orders', `c${depth}`, { depth, client_count: 0 }));
  const paused = topic('stopped', { paused: true, depth: 40 });
  expect(attentionOf(snapshot([], [paused], channels)).map((item) => item.name)).toEqual([
    'orders / c300',
    'stopped',
    'orders / c20',
    'orders / c1',
  ]);
});

test.each(['orders', 'a', 'A.b_c-9', 'x'.repeat(64), 'clicks#ephemeral', '..'])('%s is a name', (name) => {
  expect(nameFault(name)).toBeNull();
});

test.each(['', 'two words', 'naïve', 'x'.repeat(65), '#ephemeral', 'a#b', 'a#ephemeral#ephemeral', 'a/b'])(
  '“%s” is refused as a name, with a reason',
  (name) => expect(nameFault(name)).toMatch(/\w/),
);

test('the busiest topics come first; those with an unknown rate or none are left out', () => {
  const rows = snapshot([], [topic('a', { publish_rate: 2 }), topic('b', { publish_rate: 9 }), topic('c', { publish_rate: 0 }), topic('d', { publish_rate: null })], []);
  expect(busiest(rows, 5)).toEqual([
    { topic: 'b', value: 9 },
    { topic: 'a', value: 2 },
  ]);
});

test('a ranking has the first five of many topics in any order, equal ones by name', () => {
  const rates = new Map([...'hbfdageci'].map((name, at) => [name, at % 3 === 0 ? 7 : at + 1]));
  const rows = snapshot([], [...rates].map(([name, rate]) => topic(name, { publish_rate: rate })), []);
  const sorted = [...rates].sort(([a, of], [b, than]) => than - of || a.localeCompare(b));
  expect(busiest(rows, 5)).toEqual(sorted.slice(0, 5).map(([name, value]) => ({ topic: name, value })));
});

test('channels are ranked by the sum of timeouts and requeues', () => {
  const rows = snapshot([], [], [
    channel('orders', 'billing', { timeout_rate: 1, requeue_rate: 0.5 }),
    channel('orders', 'audit', { timeout_rate: 0, requeue_rate: 4 }),
    channel('orders', 'quiet', { timeout_rate: null, requeue_rate: 0.01 }),
  ]);
  expect(mostRetried(rows, 5)).toEqual([
    { topic: 'orders', channel: 'audit', timeouts: 0, requeues: 4 },
    { topic: 'orders', channel: 'billing', timeouts: 1, requeues: 0.5 },
  ]);
});

test('a mirrored node needs attention while its primary is alone', () => {
  const mirror = { pair: 'p', member: 'a0', epoch: 3, since: 0, in_sync: ['a0', 'b0'], under_replicated: false, lag_bytes: 0, lag_ms: 0 };
  const alone = { ...mirror, in_sync: ['a0'], under_replicated: true };
  expect(attentionOf(snapshot([node('a:1', { mirror }), node('b:1', { mirror: alone })], [], []))).toMatchObject([
    { tone: 'warn', what: 'under-replicated', name: 'b:1', detail: 'no follower is in sync' },
  ]);
});

test('a node that drains needs attention as what it is, not as an unhealthy one', () => {
  const drain = { since: 0, ends_at: null, takes_publishes: false, messages: 1234 };
  const broken = node('b:1', { drain, health: 'NOK - no space left on device; the node is being drained: 1234 messages are left' });
  const paused = topic('orders', { paused: true, depth: 5000 });
  expect(attentionOf(snapshot([node('a:1', { drain }), broken], [paused], []))).toMatchObject([
    { tone: 'bad', what: 'unhealthy', name: 'b:1' },
    { tone: 'warn', what: 'draining', name: 'a:1', detail: '1,234 messages are left' },
    { tone: 'warn', what: 'paused', name: 'orders' },
  ]);
});
