import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { BrowserMessage, ChannelRow, Delta, NodeRow, Run, Snapshot, TopicRow, ViewOf } from '../api/types';
import type { SocketEvents } from '../api/socket';
import { FeedStore, retryDelayMs, STALE_AFTER_MS } from './feed.svelte';
import { topicSeries } from '../history/history';

const topic = (name: string, depth: number): TopicRow => ({
  name,
  paused: false,
  depth,
  backend_depth: 0,
  message_count: depth,
  message_bytes: depth,
  channel_count: 0,
  client_count: 0,
  in_flight_count: 0,
  publish_rate: 1,
  byte_rate: 1,
  oldest_age_ms: null,
  nodes: [],
});

const snapshot = (version: number, topics: TopicRow[]): { type: 'snapshot'; view: ViewOf } & Snapshot => ({
  type: 'snapshot',
  view: {},
  version,
  taken_at: version * 1000,
  nodes: [],
  topics,
  channels: [],
});

const none = { keys: [], rows: [] };
const delta = (base: number, put: TopicRow[], drop: string[] = []): { type: 'delta' } & Delta => ({
  type: 'delta',
  version: base + 1,
  base,
  taken_at: (base + 1) * 1000,
  nodes: { put: [] as NodeRow[], set: none, drop: [] },
  topics: { put, set: none, drop },
  channels: { put: [] as ChannelRow[], set: none, drop: [] },
});

/** A websocket of which the test is the far end. */
function wire() {
  const sockets: { events: SocketEvents; sent: BrowserMessage[]; closed: boolean }[] = [];
  const connect = (events: SocketEvents) => {
    const socket = { events, sent: [] as BrowserMessage[], closed: false };
    sockets.push(socket);
    return { send: (message: BrowserMessage) => socket.sent.push(message), close: () => (socket.closed = true) };
  };
  const last = () => {
    const socket = sockets.at(-1);
    if (!socket) throw new Error('no connection was made');
    return socket;
  };
  return { connect, sockets, last };
}

const depths = (store: FeedStore): Record<string, number> =>
  'snapshot' in store.feed
    ? Object.fromEntries([...store.feed.snapshot.topics.values()].map((row) => [row.name, row.depth]))
    : {};

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function live() {
  const far = wire();
  const onLost = vi.fn();
  const store = new FeedStore(far.connect, { onLost });
  store.start();
  far.last().events.opened();
  far.last().events.message(snapshot(1, [topic('orders', 5)]));
  return { far, store, onLost };
}

describe('the live snapshot', () => {
  test('a connection without a snapshot yet is told from no connection', () => {
    const far = wire();
    const store = new FeedStore(far.connect);
    store.start();
    expect(store.feed).toEqual({ status: 'connecting', attempts: 0 });
    far.last().events.opened();
    expect(store.feed).toEqual({ status: 'empty' });
  });

  test('deltas put whole rows and drop those that are gone', () => {
    const { far, store } = live();
    far.last().events.message(delta(1, [topic('orders', 6), topic('emails', 1)]));
    expect(depths(store)).toEqual({ orders: 6, emails: 1 });
    far.last().events.message(delta(2, [], ['orders']));
    expect(depths(store)).toEqual({ emails: 1 });
    expect(store.feed.status).toBe('live');
  });

  test('numbers that changed are put into the rows they belong to', () => {
    const { far, store } = live();
    const change = delta(1, []);
    far.last().events.message({ ...change, topics: { put: [], set: { keys: ['orders'], rows: [{ depth: 9 }] }, drop: [] } });
    expect(depths(store)).toEqual({ orders: 9 });
    expect('snapshot' in store.feed && store.feed.snapshot.topics.get('orders')?.message_count).toBe(5);
  });

  test('a page of one topic is told of that one, and keeps what it knew of the others', () => {
    const { far, store } = live();
    far.last().events.message(delta(1, [topic('emails', 1)]));
    store.look({ topic: 'orders' });
    expect(far.last().sent).toEqual([{ type: 'view', topic: 'orders' }]);
    far.last().events.message({ ...snapshot(3, [topic('orders', 7)]), view: { topic: 'orders' } });
    expect(depths(store)).toEqual({ orders: 7, emails: 1 });
    expect(store.history.recent(topicSeries('emails'), 'depth', 2)).toEqual([1, NaN]);
    far.last().events.message({ ...snapshot(4, []), view: { topic: 'orders' } });
    expect(depths(store)).toEqual({ emails: 1 });
    store.look({});
    far.last().events.message(snapshot(5, [topic('emails', 2)]));
    expect(depths(store)).toEqual({ emails: 2 });
  });

  test('a view outlives the connection', () => {
    const { far, store } = live();
    store.look({ node: 'a:1' });
    far.last().events.closed();
    vi.advanceTimersByTime(retryDelayMs(0));
    far.last().events.opened();
    expect(far.last().sent).toEqual([{ type: 'view', node: 'a:1' }]);
  });

  test('a missed delta asks once for the whole snapshot and goes on from it', () => {
    const { far, store } = live();
    far.last().events.message(delta(7, [topic('orders', 99)]));
    far.last().events.message(delta(8, [topic('orders', 100)]));
    expect(far.last().sent).toEqual([{ type: 'resync' }]);
    expect(depths(store)).toEqual({ orders: 5 });
    far.last().events.message(snapshot(9, [topic('orders', 101)]));
    far.last().events.message(delta(9, [topic('orders', 102)]));
    expect(depths(store)).toEqual({ orders: 102 });
  });

  test('a snapshot told twice is one beat of history', () => {
    const { far, store } = live();
    far.last().events.message(snapshot(1, [topic('orders', 5)]));
    expect(store.history.recent(topicSeries('orders'), 'depth', 10)).toEqual([5]);
  });

  test('three seconds of silence make it stale, and the next beat live again', () => {
    const { far, store } = live();
    vi.advanceTimersByTime(STALE_AFTER_MS - 1);
    expect(store.feed.status).toBe('live');
    vi.advanceTimersByTime(1);
    expect(store.feed).toMatchObject({ status: 'stale', snapshot: { takenAt: 1000 } });
    far.last().events.message(delta(1, []));
    expect(store.feed.status).toBe('live');
  });

  test('a broken connection keeps the last snapshot, is looked into and made again', () => {
    const { far, store, onLost } = live();
    far.last().events.closed();
    expect(onLost).toHaveBeenCalledOnce();
    expect(depths(store)).toEqual({ orders: 5 });
    vi.advanceTimersByTime(retryDelayMs(0));
    expect(far.sockets).toHaveLength(2);
    far.last().events.opened();
    far.last().events.message(snapshot(4, [topic('orders', 8)]));
    expect(depths(store)).toEqual({ orders: 8 });
  });

  test('attempts to reconnect grow apart, up to ten seconds', () => {
    expect([0, 1, 2, 5, 50].map(retryDelayMs)).toEqual([500, 1000, 2000, 10_000, 10_000]);
  });

  test('a paused page stands still while the cluster is followed behind it', () => {
    const { far, store } = live();
    store.pause();
    far.last().events.message(delta(1, [topic('orders', 50)]));
    expect(store.feed.status).toBe('paused');
    expect(depths(store)).toEqual({ orders: 5 });
    store.resume();
    expect(store.feed.status).toBe('live');
    expect(depths(store)).toEqual({ orders: 50 });
    expect(store.history.recent(topicSeries('orders'), 'depth', 10)).toEqual([5, 50]);
  });

  test('resuming while nothing is heard shows a stale snapshot, not a live one', () => {
    const { store } = live();
    store.pause();
    vi.advanceTimersByTime(STALE_AFTER_MS);
    expect(store.feed.status).toBe('paused');
    store.resume();
    expect(store.feed.status).toBe('stale');
  });

  test('signing out closes the socket and nothing is retried', () => {
    const { far, store } = live();
    store.stop();
    expect(far.last().closed).toBe(true);
    vi.advanceTimersByTime(60_000);
    expect(far.sockets).toHaveLength(1);
    expect(store.feed.status).toBe('connecting');
  });
});

describe('what rides along', () => {
  test('clients of the watched channel are kept, those of another ignored, and the watch outlives the connection', () => {
    const { far, store } = live();
    store.watch('orders', 'billing');
    far.last().events.message({ type: 'clients', topic: 'orders', channel: 'other', clients: [] });
    expect(store.clients).toBeNull();
    far.last().events.message({ type: 'clients', topic: 'orders', channel: 'billing', clients: [] });
    expect(store.clients).toEqual([]);
    far.last().events.closed();
    vi.advanceTimersByTime(retryDelayMs(0));
    far.last().events.opened();
    expect(far.last().sent).toEqual([{ type: 'watch', topic: 'orders', channel: 'billing' }]);
  });

  test('a run is told to who listens, until they stop', () => {
    const { far, store } = live();
    const heard: number[] = [];
    const stop = store.onRun((run) => heard.push(run.id));
    far.last().events.message({ type: 'run', run: { id: 3 } as Run });
    stop();
    far.last().events.message({ type: 'run', run: { id: 4 } as Run });
    expect(heard).toEqual([3]);
  });
});

test('beats that come while the browser draws, or looks elsewhere, are drawn together', () => {
  const { connect, sockets } = wire();
  const frames: (() => void)[] = [];
  const store = new FeedStore(connect, { frame: (draw) => void frames.push(draw) });
  store.start();
  const socket = sockets[0];
  socket?.events.opened();
  socket?.events.message(snapshot(1, [topic('orders', 1)]));
  for (let base = 1; base <= 50; base++) socket?.events.message(delta(base, [topic('orders', base + 1)]));
  expect(frames).toHaveLength(1);
  expect(store.beat).toBe(0);
  frames[0]?.();
  expect(store.beat).toBe(1);
  expect(store.feed.status === 'live' && store.feed.snapshot.topics.get('orders')?.depth).toBe(51);
  expect(store.history.recent(topicSeries('orders'), 'depth', 100)).toHaveLength(51); // none is lost to the charts
  store.stop();
});

test('whether the socket is open is told apart from whether the snapshot is fresh', () => {
  const { connect, sockets } = wire();
  const store = new FeedStore(connect);
  store.start();
  sockets[0]?.events.opened();
  sockets[0]?.events.message(snapshot(1, []));
  expect(store.connected).toBe(true);
  sockets[0]?.events.closed();
  expect(store.connected).toBe(false);
  store.reconnect();
  sockets[1]?.events.opened();
  expect(store.connected).toBe(true);
  store.stop();
});
