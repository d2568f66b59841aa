import { expect, test } from 'vitest';
import type { ActionName, ChannelNode, ChannelRow, NodeRow, TopicRow } from '../api/types';
import { clock } from '../format/format';
import { rewindCost } from '../messages/rewind';
import { costOf, destroys, wordOf, type Costly } from './cost';
import { applyDelta, channelKey, merged, type ClusterSnapshot } from './snapshot';

const AT = Date.UTC(2026, 10, 23, 12);
const SINCE = AT - 60_000;

type Share = [node: string, waiting: number, inFlight?: number, deferred?: number, clients?: number, dead?: number];

const node = (id: string, change: Partial<NodeRow> = {}): NodeRow => ({ id, state: 'up', down_since: null, ...change }) as NodeRow;
const topic = (name: string, depths: Record<string, number>): TopicRow =>
  ({
    name,
    depth: Object.values(depths).reduce((sum, depth) => sum + depth, 0),
    nodes: Object.entries(depths).map(([id, depth]) => ({ node: id, depth })),
  }) as unknown as TopicRow;
const channel = (of: string, name: string, ...shares: Share[]): ChannelRow =>
  ({
    topic: of,
    name,
    depth: shares.reduce((sum, [, waiting]) => sum + waiting, 0),
    in_flight_count: shares.reduce((sum, [, , inFlight = 0]) => sum + inFlight, 0),
    deferred_count: shares.reduce((sum, [, , , deferred = 0]) => sum + deferred, 0),
    dead_count: shares.reduce((sum, [, , , , , dead = 0]) => sum + dead, 0),
    client_count: shares.reduce((sum, [, , , , clients = 0]) => sum + clients, 0),
    nodes: shares.map(
      ([id, depth, in_flight_count = 0, deferred_count = 0, client_count = 0, dead_count = 0]): Partial<ChannelNode> => ({ node: id, depth, in_flight_count, deferred_count, client_count, dead_count }),
    ),
  }) as ChannelRow;

function snapshot(nodes: NodeRow[], topics: TopicRow[], channels: ChannelRow[]): ClusterSnapshot {
  return {
    version: 1,
    takenAt: AT,
    nodes: new Map(nodes.map((row) => [row.id, row])),
    topics: new Map(topics.map((row) => [row.name, row])),
    channels: new Map(channels.map((row) => [channelKey(row), row])),
  };
}

const topics = [topic('orders', { 'a:1': 7, 'b:1': 0, 'c:1': 0 }), topic('emails', { 'a:1': 0 })];
const channels = [
  channel('orders', 'billing', ['a:1', 1000, 3, 2, 4], ['b:1', 100, 0, 0, 1], ['c:1', 20, 1]),
  channel('orders', 'archive', ['a:1', 50], ['b:1', 25]),
  channel('emails', 'send', ['a:1', 0]),
];
const shop = snapshot([node('a:1'), node('b:1'), node('c:1')], topics, channels);
const partly = snapshot([node('a:1'), node('b:1', { state: 'down', down_since: SINCE }), node('c:1')], topics, channels);

const of = (costly: Costly, shown = shop) => costOf(shown, costly, AT);
const text = (action: ActionName, targets: { topic: string; channel?: string }[], shown = shop): string | undefined =>
  of({ action, targets }, shown)?.sentences.join(' ');

test('deleting a topic also deletes its channels and all their messages', () => {
  expect(text('delete', [{ topic: 'orders' }])).toBe(
    '1,208 messages on 3 nodes are deleted: 7 in no channel, and in 2 channels 1,195 waiting, 4 in flight and 2 deferred. ' +
      'The topic and its 2 channels are removed, and 5 clients are disconnected. ' +
      'A message that several channels have not finished counts once for each. This cannot be undone.',
  );
  expect(of({ action: 'delete', targets: [{ topic: 'orders' }] })).toMatchObject({ lost: 1208, nodes: ['a:1', 'b:1', 'c:1'], silent: [] });
});

test('deleting a channel removes its messages and disconnects its clients', () => {
  expect(text('delete', [{ topic: 'orders', channel: 'billing' }])).toBe(
    '1,126 messages on 3 nodes are deleted: 1,120 waiting, 4 in flight and 2 deferred. ' +
      'The channel is removed, and 5 clients are disconnected. This cannot be undone.',
  );
  expect(text('delete', [{ topic: 'emails', channel: 'send' }])).toBe(
    'No messages are deleted: there are none on node a:1. The channel is removed. This cannot be undone.',
  );
});

test('emptying a topic deletes only messages that no channel has received', () => {
  expect(text('empty', [{ topic: 'orders' }])).toBe(
    '7 messages on 3 nodes are deleted: those that no channel has received. ' +
      'The 1,201 messages in its 2 channels stay. This cannot be undone.',
  );
});

test('emptying a channel deletes its ready, in-flight and deferred messages', () => {
  expect(text('empty', [{ topic: 'orders', channel: 'billing' }])).toBe(
    '1,126 messages on 3 nodes are deleted: 1,120 waiting, 4 in flight and 2 deferred. ' +
      '5 clients stay connected. A rewind brings back only messages that a node still stores.',
  );
});

test('dead messages are lost with their channel, topic or node, and stay when the channel is emptied', () => {
  const sick = snapshot(
    [node('a:1'), node('b:1')],
    [topic('orders', { 'a:1': 0, 'b:1': 0 })],
    [channel('orders', 'billing', ['a:1', 10, 0, 0, 0, 3], ['b:1', 0, 0, 0, 0, 4])],
  );
  const billing = [{ topic: 'orders', channel: 'billing' }];
  expect(text('delete', billing, sick)).toContain('17 messages on 2 nodes are deleted: 10 waiting and 7 dead.');
  expect(text('delete', [{ topic: 'orders' }], sick)).toContain('17 messages on 2 nodes are deleted: in 1 channel 10 waiting and 7 dead.');
  expect(text('empty', billing, sick)).toContain('10 messages on 2 nodes are deleted: 10 waiting. 7 dead messages stay.');
  expect(text('empty', [{ topic: 'orders' }], sick)).toContain('The 17 messages in its 1 channel stay.');
  expect(text('pause', billing, sick)).toContain('10 messages on 2 nodes stay until unpaused: 10 waiting.');
  expect(of({ action: 'tombstone', topic: 'orders', node: 'a:1' }, sick)?.sentences).toContain('4 messages on 1 other node stay.');
  expect(of({ action: 'tombstone', topic: 'orders', node: 'a:1' }, sick)?.lost).toBe(13);
});

test('pausing says what waits and who gets nothing, and loses nothing', () => {
  expect(text('pause', [{ topic: 'orders', channel: 'billing' }])).toBe(
    '1,122 messages on 3 nodes stay until unpaused: 1,120 waiting and 2 deferred. 5 clients get no further messages. 4 in flight can still be finished.',
  );
  expect(text('pause', [{ topic: 'emails', channel: 'send' }])).toBe('0 messages on node a:1 stay until unpaused. No client is subscribed.');
  expect(text('unpause', [{ topic: 'orders', channel: 'billing' }])).toBe('1,120 waiting messages on 3 nodes can be delivered again, to 5 clients.');
  expect(text('unpause', [{ topic: 'emails', channel: 'send' }])).toBe('0 waiting messages on node a:1 can be delivered again, to no client now.');
  expect(text('pause', [{ topic: 'orders' }])).toBe(
    'New messages stay in the topic on 3 nodes, which has 7 messages now, and no longer reach its 2 channels until unpaused.',
  );
  expect(text('unpause', [{ topic: 'orders' }])).toBe('7 messages on 3 nodes continue to its 2 channels.');
  expect(of({ action: 'pause', targets: [{ topic: 'orders' }] })?.lost).toBe(0);
});

test('the messages of many targets are added up, and their number must be typed', () => {
  const both = [{ topic: 'orders', channel: 'billing' }, { topic: 'orders', channel: 'archive' }];
  expect(text('empty', both)).toContain('1,201 messages on 3 nodes are deleted: 1,195 waiting, 4 in flight and 2 deferred.');
  expect(text('delete', [{ topic: 'orders' }, { topic: 'emails' }])).toContain('The 2 topics and their 3 channels are removed, and 5 clients are disconnected.');
  expect(wordOf(both)).toBe('2');
  expect(wordOf(both.slice(0, 1))).toBe('billing');
  expect(wordOf([{ topic: 'orders' }])).toBe('orders');
});

test('nodes that do not answer are named, and their messages are not counted', () => {
  const cost = of({ action: 'delete', targets: [{ topic: 'orders' }] }, partly);
  expect(cost?.sentences[0]).toBe('1,083 messages on 2 nodes are deleted: 7 in no channel, and in 2 channels 1,070 waiting, 4 in flight and 2 deferred.');
  expect(cost?.silent).toEqual([
    '2 of 3 nodes answer, and only these are counted.',
    `b:1 has not answered since ${clock(SINCE)}: unknown, 125 messages at its last answer.`,
  ]);
  expect(cost?.lost).toBe(1083);
});

test('while the page subscribes to everything, figures are those of the row, which is newer than its shares', () => {
  const newer = { ...channels[0], depth: 9000 } as ChannelRow;
  const shown = snapshot([node('a:1'), node('b:1'), node('c:1')], topics, [newer]);
  expect(text('empty', [{ topic: 'orders', channel: 'billing' }], shown)).toContain('9,006 messages on 3 nodes are deleted: 9,000 waiting');
});

test('if no node answers, the number is unknown, and not zero', () => {
  const lonely = snapshot([node('a:1', { state: 'down', down_since: SINCE })], [topics[1] as TopicRow], [channels[2] as ChannelRow]);
  const cost = of({ action: 'delete', targets: [{ topic: 'emails' }] }, lonely);
  expect(cost?.sentences[0]).toBe('How many messages are deleted is unknown: a:1 does not answer.');
  expect(cost?.silent[1]).toBe(`a:1 has not answered since ${clock(SINCE)}: unknown, 0 messages at its last answer.`);
  expect(of({ action: 'pause', targets: [{ topic: 'emails' }] }, lonely)?.sentences).toEqual(['How many messages and clients this concerns is unknown: a:1 does not answer.']);
  const never = snapshot([node('a:1'), node('x:1', { state: 'down' })], topics, channels);
  expect(of({ action: 'empty', targets: [{ topic: 'orders' }] }, never)?.silent.at(-1)).toBe('x:1 has not answered yet: unknown.');
});

test('deleting a topic that only registries know loses no messages', () => {
  expect(text('delete', [{ topic: 'ghost' }], snapshot([node('a:1')], [topic('ghost', {})], []))).toBe('No node has the topic. The registries forget it.');
});

test('a tombstone deletes the topic on one node, hides the node for a time, and leaves the others', () => {
  const cost = of({ action: 'tombstone', topic: 'orders', node: 'a:1' });
  expect(cost?.sentences).toEqual([
    '1,062 messages on node a:1 are deleted: 7 in no channel, and in 2 channels 1,050 waiting, 3 in flight and 2 deferred.',
    'a:1 removes the topic and its 2 channels and disconnects 4 clients.',
    'Registries hide a:1 from lookups of orders for their tombstone lifetime, 45 s by default. A later message published to a:1 brings the topic back.',
    '146 messages on 2 other nodes stay.',
    'A message that several channels have not finished counts once for each.',
    'This cannot be undone.',
  ]);
  expect(cost).toMatchObject({ lost: 1062, nodes: ['a:1'], silent: [] });
  const silent = of({ action: 'tombstone', topic: 'orders', node: 'b:1' }, partly);
  expect(silent?.sentences[0]).toBe('How many messages are deleted is unknown: b:1 does not answer.');
  expect(silent?.silent[1]).toBe(`b:1 has not answered since ${clock(SINCE)}: unknown, 125 messages at its last answer.`);
});

test('figures have their time, and older ones than the snapshot are not shown', () => {
  expect(of({ action: 'empty', targets: [{ topic: 'orders' }] })?.asOf).toBe(`Figures as of ${clock(AT)}.`);
  const received = snapshot([node('a:1')], [topics[1] as TopicRow], [channels[2] as ChannelRow]);
  const page = merged(shop, received, { topic: 'emails' });
  expect(of({ action: 'delete', targets: [{ topic: 'orders' }] }, page)).toBeNull();
  expect(of({ action: 'delete', targets: [{ topic: 'emails' }] }, page)).not.toBeNull();
  const unchanged = { put: [], drop: [], set: { keys: [], columns: {} } };
  const later = applyDelta(page, { base: 1, version: 2, taken_at: AT + 1000, nodes: unchanged, topics: unchanged, channels: unchanged });
  expect(of({ action: 'delete', targets: [{ topic: 'orders' }] }, later ?? undefined)).toBeNull();
  expect(of({ action: 'delete', targets: [{ topic: 'orders' }] }, merged(later, shop, {}))).not.toBeNull();
});

test('the name must be typed only if messages would be lost', () => {
  const asked = (['pause', 'unpause', 'create', 'empty', 'delete', 'tombstone'] as const).filter(destroys);
  expect(asked).toEqual(['empty', 'delete', 'tombstone']);
});

test('a rewind says how many messages come again, by the count of each node, and names those that did not count', () => {
  const part = { node: 'a:1', messages: 1200, oldest: SINCE, complete: true, error: '' };
  const cost = rewindCost(
    { counted_at: AT, nodes: [part, { ...part, node: 'b:1', messages: 4, oldest: SINCE - 1000, complete: false }, { node: 'c:1', messages: null, oldest: null, complete: false, error: 'it cannot' }] },
    2,
    AT,
  );
  expect(cost.sentences[0]).toMatch(/^1,204 messages on 2 nodes are delivered again, the oldest of 23 Nov 2026/);
  expect(cost.sentences.slice(1)).toEqual(['2 clients are subscribed to receive them.', 'Messages of that time may be missing, because b:1 no longer stores older ones.']);
  expect(cost.silent).toEqual(['2 of 3 nodes have counted.', 'c:1: unknown, it cannot.']);
  expect(cost.asOf).toBe(`Counted by the nodes. Figures as of ${clock(AT)}.`);
  expect(cost.lost).toBe(0);
  expect(rewindCost({ counted_at: AT, nodes: [{ ...part, messages: 0, oldest: null }] }, 0, AT).sentences[0]).toBe('No messages are delivered again: node a:1 stores no delivered messages of that time.');
});
