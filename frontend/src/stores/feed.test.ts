import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { BrowserMessage, ChannelRow, Delta, NodeRow, Run, Snapshot, TopicRow, ViewOf } from '../api/types';
import { retryDelayMs, type SocketEvents } from '../api/socket';
import { FeedStore, STALE_AFTER_MS } from './feed.svelte';
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
  dead_count: 0,
  publish_rate: 1,
  byte_rate: 1,
  emptied_count: 0,
  emptied_rate: 0,
  oldest_age_ms: null,
  nodes: [],
});

const snapshot = (version: number, topics: TopicRow[]): { type: 'snapshot' | 'rest'; view: ViewOf } & Snapshot => ({
  type: 'snapshot',
  view: {},
  version,
  taken_at: version * 1000,
  nodes: [],
  topics,
  channels: [],
});

const none = { keys: [], columns: {} };
const delta = (base: number, put: TopicRow[], drop: string[] = []): { type: 'delta' } & Delta => ({
  type: 'delta',
  version: base + 1,
  base,
  taken_at: (base + 1) * 1000,
  nodes: { put: [] as NodeRow[], set: none, drop: [] },
  topics: { put, set: none, drop },
  channels: { put: [] as ChannelRow[], set: none, drop: [] },
});

/** A websocket whose server is the test. */
function wire() {
  const sockets: { view: ViewOf; events: SocketEvents; sent: BrowserMessage[]; closed: boolean }[] = [];
  const connect = (view: ViewOf, events: SocketEvents) => {
    const socket = { view, events, sent: [] as BrowserMessage[], closed: false };
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

type Options = NonNullable<ConstructorParameters<typeof FeedStore>[1]> & { depth?: number };

/** A store with an open socket and a first snapshot, in which topic orders has `depth` messages. */
function live({ depth = 5, ...options }: Options = {}) {
  const far = wire();
  const onLost = vi.fn();
  const store = new FeedStore(far.connect, { onLost, ...options });
  store.start();
  far.last().events.opened();
  far.last().events.message(snapshot(1, [topic('orders', depth)]));
  return { far, store, onLost };
}

describe('the live snapshot', () => {
  test('a connection without a snapshot yet differs from no connection', () => {
    const far = wire();
    const store = new FeedStore(far.connect);
    store.start();
    expect(store.feed).toEqual({ status: 'connecting', attempts: 0 });
    far.last().events.opened();
    expect(store.feed).toEqual({ status: 'empty' });
  });

  test('deltas insert whole rows and drop deleted ones', () => {
    const { far, store } = live();
    far.last().events.message(delta(1, [topic('orders', 6), topic('emails', 1)]));
    expect(depths(store)).toEqual({ orders: 6, emails: 1 });
    far.last().events.message(delta(2, [], ['orders']));
    expect(depths(store)).toEqual({ emails: 1 });
    expect(store.feed.status).toBe('live');
  });

  test('changed numbers are set in their rows', () => {
    const { far, store } = live();
    const change = delta(1, []);
    far.last().events.message({ ...change, topics: { put: [], set: { keys: ['orders'], columns: { depth: [9] } }, drop: [] } });
    expect(depths(store)).toEqual({ orders: 9 });
    expect('snapshot' in store.feed && store.feed.snapshot.topics.get('orders')?.message_count).toBe(5);
  });

  test('a page of one topic receives that topic, and keeps the last known rows of the others', () => {
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
    expect(far.last()).toMatchObject({ view: { node: 'a:1' }, sent: [] });
  });

  test('a page of one topic first receives that topic, and after it the others', () => {
    const far = wire();
    const store = new FeedStore(far.connect);
    store.look({ topic: 'orders' });
    store.start();
    far.last().events.opened();
    far.last().events.message({ ...snapshot(3, [topic('orders', 7)]), view: { topic: 'orders' } });
    expect(depths(store)).toEqual({ orders: 7 });
    expect(far.last().sent).toEqual([{ type: 'rest' }]);
    far.last().events.message({ ...delta(3, [topic('orders', 8)]), version: 4 });
    far.last().events.message({ ...snapshot(3, [topic('orders', 7), topic('emails', 1)]), type: 'rest' });
    expect(depths(store)).toEqual({ emails: 1, orders: 8 });
    far.last().events.message(delta(4, [topic('orders', 9)]));
    expect(depths(store)).toEqual({ emails: 1, orders: 9 });
    expect(far.last().sent).toHaveLength(1);
  });

  test('a view that changes while the socket is opened is sent', () => {
    const far = wire();
    const store = new FeedStore(far.connect);
    store.start();
    store.look({ topic: 'orders' });
    far.last().sent.length = 0; // a socket that is not open sends nothing
    far.last().events.opened();
    expect(far.last()).toMatchObject({ view: {}, sent: [{ type: 'view', topic: 'orders' }] });
  });

  test('after a missed delta the whole snapshot is requested once', () => {
    const { far, store } = live();
    far.last().events.message(delta(7, [topic('orders', 99)]));
    far.last().events.message(delta(8, [topic('orders', 100)]));
    expect(far.last().sent).toEqual([{ type: 'resync' }]);
    expect(depths(store)).toEqual({ orders: 5 });
    far.last().events.message(snapshot(9, [topic('orders', 101)]));
    far.last().events.message(delta(9, [topic('orders', 102)]));
    expect(depths(store)).toEqual({ orders: 102 });
  });

  test('a snapshot received twice is recorded once in the history', () => {
    const { far, store } = live();
    far.last().events.message(snapshot(1, [topic('orders', 5)]));
    expect(store.history.recent(topicSeries('orders'), 'depth', 10)).toEqual([5]);
  });

  test('three seconds without a message make it stale, and the next snapshot live again', () => {
    const { far, store } = live();
    vi.advanceTimersByTime(STALE_AFTER_MS - 1);
    expect(store.feed.status).toBe('live');
    vi.advanceTimersByTime(1);
    expect(store.feed).toMatchObject({ status: 'stale', snapshot: { takenAt: 1000 } });
    far.last().events.message(delta(1, []));
    expect(store.feed.status).toBe('live');
  });

  test('a change of the user’s role checks the session', () => {
    const far = wire();
    const onAccount = vi.fn();
    const store = new FeedStore(far.connect, { onAccount });
    store.start();
    far.last().events.opened();
    far.last().events.message({ type: 'account' });
    expect(onAccount).toHaveBeenCalledOnce();
  });

  test('a broken connection keeps the last snapshot, checks the session and reconnects', () => {
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

  test('pauses between attempts to reconnect grow to ten seconds', () => {
    expect([0, 1, 2, 5, 50].map(retryDelayMs)).toEqual([500, 1000, 2000, 10_000, 10_000]);
  });

  test('a paused page does not change while updates continue in the background', () => {
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

  test('resuming without new messages shows a stale snapshot, not a live one', () => {
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

describe('other messages', () => {
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

  test('listeners receive runs until they unsubscribe', () => {
    const { far, store } = live();
    const heard: number[] = [];
    const stop = store.onRun((run) => heard.push(run.id));
    far.last().events.message({ type: 'run', run: { id: 3 } as Run });
    stop();
    far.last().events.message({ type: 'run', run: { id: 4 } as Run });
    expect(heard).toEqual([3]);
  });
});

test('snapshots that come while the browser draws, or is hidden, are drawn together', () => {
  const frames: (() => void)[] = [];
  const { far, store } = live({ depth: 1, frame: (draw) => void frames.push(draw) });
  for (let base = 1; base <= 50; base++) far.last().events.message(delta(base, [topic('orders', base + 1)]));
  expect(frames).toHaveLength(1);
  expect(store.updates).toBe(0);
  frames[0]?.();
  expect(store.updates).toBe(1);
  expect(store.feed.status === 'live' && store.feed.snapshot.topics.get('orders')?.depth).toBe(51);
  expect(store.history.recent(topicSeries('orders'), 'depth', 100)).toHaveLength(51); // none is lost to the charts
  store.stop();
});

test('the first rows are drawn before the history is made, which then has every snapshot', () => {
  const later: (() => void)[] = [];
  const { far, store } = live({ depth: 1, afterFrame: (work) => void later.push(work) });
  expect(store.feed.status).toBe('live');
  expect(store.history.recent(topicSeries('orders'), 'depth', 9)).toEqual([]);
  const drawn = store.updates;
  later.shift()?.();
  expect(store.history.recent(topicSeries('orders'), 'depth', 9)).toEqual([1]);
  expect(store.updates).toBe(drawn + 1);
  far.last().events.message(delta(1, [topic('orders', 2)]));
  expect(store.history.recent(topicSeries('orders'), 'depth', 9)).toEqual([1, 2]);
  store.stop();
});

test('a second snapshot that comes before the history is made does not replace the first in it', () => {
  const later: (() => void)[] = [];
  const { far, store } = live({ depth: 1, afterFrame: (work) => void later.push(work) });
  far.last().events.message(delta(1, [topic('orders', 2)]));
  for (const work of later) work();
  expect(store.history.recent(topicSeries('orders'), 'depth', 9)).toEqual([1, 2]);
  store.stop();
});

test('a message is taken in a task of its own, and its snapshot is added to the history in another', () => {
  const [tasks, frames]: [(() => void)[], (() => void)[]] = [[], []];
  const { far, store } = live({ depth: 1, task: (work) => void tasks.push(work), frame: (draw) => void frames.push(draw) });
  const depths = () => store.history.recent(topicSeries('orders'), 'depth', 9);
  const shown = () => (store.feed.status === 'live' ? store.feed.snapshot.version : null);
  tasks.shift()?.();
  frames.shift()?.();
  far.last().events.message(delta(1, [topic('orders', 2)]));
  expect(frames).toEqual([]); // it is not taken yet
  tasks.shift()?.();
  expect(depths()).toEqual([1]);
  tasks.shift()?.();
  expect([depths(), shown()]).toEqual([[1, 2], 1]);
  frames.shift()?.();
  expect(shown()).toBe(2);
  store.stop();
});

test('a message that was not applied when the connection ended is applied before that, and none after a stop', () => {
  const tasks: (() => void)[] = [];
  const { far, store } = live({ depth: 1, task: (work) => void tasks.push(work) });
  const version = () => ('snapshot' in store.feed ? store.feed.snapshot.version : null);
  for (const take of tasks.splice(0)) take();
  far.last().events.message(delta(1, [topic('orders', 2)]));
  far.last().events.closed();
  expect([version(), store.connected]).toEqual([2, false]);
  store.reconnect();
  far.last().events.opened();
  far.last().events.message(delta(2, [topic('orders', 3)]));
  store.stop();
  store.start();
  for (const take of tasks.splice(0)) take();
  expect(store.feed.status).toBe('connecting');
  store.stop();
});

test('of a first snapshot and a message that come just before the connection ends, the first is in the history first', () => {
  const [tasks, later]: [(() => void)[], (() => void)[]] = [[], []];
  const { far, store } = live({ depth: 1, task: (work) => void tasks.push(work), afterFrame: (work) => void later.push(work) });
  far.last().events.message(delta(1, [topic('orders', 2)]));
  far.last().events.closed();
  for (let work = later.shift() ?? tasks.shift(); work !== undefined; work = later.shift() ?? tasks.shift()) work();
  expect(store.history.recent(topicSeries('orders'), 'depth', 9)).toEqual([1, 2]);
  store.stop();
});

test('a snapshot is in the history before the next drawing and the next snapshot, however busy the browser is', () => {
  const [tasks, frames]: [(() => void)[], (() => void)[]] = [[], []];
  const { far, store } = live({ depth: 1, task: (work) => void tasks.push(work), frame: (draw) => void frames.push(draw) });
  const depths = () => store.history.recent(topicSeries('orders'), 'depth', 9);
  far.last().events.message(delta(1, [topic('orders', 2)]));
  far.last().events.message(delta(2, [topic('orders', 3)]));
  for (const take of tasks.splice(0)) take();
  expect(depths()).toEqual([1, 2]);
  frames.shift()?.();
  expect(depths()).toEqual([1, 2, 3]);
  for (const add of tasks) add();
  expect(depths()).toEqual([1, 2, 3]);
  store.stop();
});

test('whether the socket is open and whether the snapshot is fresh are separate', () => {
  const { far, store } = live();
  expect(store.connected).toBe(true);
  far.last().events.closed();
  expect(store.connected).toBe(false);
  store.reconnect();
  far.last().events.opened();
  expect(store.connected).toBe(true);
  store.stop();
});

test('the last minutes of a view are read once, and again for another view and after a lost connection', async () => {
  const asked: ViewOf[] = [];
  const series = (times: number[]) => [{ scope: 'topic' as const, names: ['orders'], times, phases: [0], metrics: { depth: [[7]] } }];
  const loadRecent = (view: ViewOf) => {
    asked.push(view);
    return asked.length < 3 ? Promise.resolve({ step_s: 10, series: series([-20, -10, 0]) }) : Promise.reject(new Error('refused'));
  };
  const { far, store } = live({ depth: 8, loadRecent });
  await vi.waitFor(() => expect(store.history.recent(topicSeries('orders'), 'depth', 22)).toEqual([...Array<number>(21).fill(7), 8]));
  far.last().events.message(snapshot(2, [topic('orders', 8)]));
  expect(asked).toEqual([{}]);
  store.look({ topic: 'orders' });
  far.last().events.message({ ...snapshot(3, [topic('orders', 8)]), view: { topic: 'orders' } });
  expect(asked).toEqual([{}, { topic: 'orders' }]);
  far.last().events.closed();
  store.reconnect();
  far.last().events.opened();
  far.last().events.message({ ...snapshot(4, [topic('orders', 9)]), view: { topic: 'orders' } });
  expect(asked).toHaveLength(3);
  await Promise.resolve();
  expect(store.feed.status).toBe('live');
  store.stop();
});
