import { expect, test, vi } from 'vitest';
import type { ChannelRow, NodeRow, TopicRow } from '../api/types';
import { BulkStore } from './bulk.svelte';
import { isGrowing, channelFilters, narrowed, withCounts } from '../snapshot/filters';
import { channelSeries, History } from '../history/history';
import { joined, within, type Columns } from '../history/columns';
import { KeySequence } from '../navigation/keys';
import { fit, paletteItems } from '../navigation/palette';
import type { ClusterSnapshot } from '../snapshot/snapshot';
import { parentOf } from '../navigation/routes';
import { Selection } from './selection.svelte';
import { StableOrder } from '../tables/table';
import { parseSort, sortText } from '../tables/sort';
import { TableView, type Address } from './view.svelte';

function channel(topic: string, name: string, more: Partial<ChannelRow> = {}): ChannelRow {
  return { topic, name, depth: 0, in_flight_count: 0, deferred_count: 0, client_count: 1, timeout_rate: 0, paused: false, nodes: [], ...more } as ChannelRow;
}

function snapshot(channels: ChannelRow[], second = 1): ClusterSnapshot {
  const topics = [...new Set(channels.map(({ topic }) => topic))].map((name): [string, TopicRow] => [
    name,
    { name, depth: 0, paused: false, nodes: [{ node: 'a:1' }], channel_count: 1 } as unknown as TopicRow,
  ]);
  return {
    version: second,
    takenAt: second * 1000,
    nodes: new Map([['a:1', { id: 'a:1', hostname: 'alpha', state: 'up' } as NodeRow]]),
    topics: new Map(topics),
    channels: new Map(channels.map((row) => [`${row.topic}/${row.name}`, row])),
  };
}

class Bar implements Address {
  search = new URLSearchParams();
  pushed = 0;
  set(changes: Readonly<Record<string, string | null>>, { push = false } = {}): void {
    for (const [name, value] of Object.entries(changes)) value === null ? this.search.delete(name) : this.search.set(name, value);
    this.pushed += Number(push);
  }
}

test('the address contains a table’s search, filters and order, except for the default order', () => {
  const bar = new Bar();
  const view = new TableView(bar, { sort: { column: 'name', descending: false } });
  expect(view.sort).toEqual({ column: 'name', descending: false });
  view.query = 'pay';
  view.sort = { column: 'depth', descending: true };
  view.toggle('paused');
  view.toggle('unread');
  expect(bar.search.toString()).toBe('q=pay&sort=-depth&filter=paused%2Cunread');
  expect(bar.pushed).toBe(2); // filters can be undone by the back button, typing is not
  const again = new TableView(bar);
  expect([again.query, again.sort, [...again.filters]]).toEqual(['pay', { column: 'depth', descending: true }, ['paused', 'unread']]);
  view.sort = { column: 'name', descending: false };
  view.clear();
  expect(bar.search.toString()).toBe('');
});

test('an invalid order is ignored', () => {
  expect(parseSort('<script>')).toBeNull();
  expect(parseSort(sortText({ column: 'p99', descending: true }))).toEqual({ column: 'p99', descending: true });
});

test('with hold, rows stay in place and new ones come last', () => {
  const order = new StableOrder<{ id: string; n: number }>();
  const apply = (rows: { id: string; n: number }[], hold: boolean, by = 'n'): string =>
    order.apply(rows, (row) => row.id, { by, sort: (row) => row.n, descending: true, hold }).map((row) => row.id).join('');
  expect(apply([{ id: 'a', n: 1 }, { id: 'b', n: 2 }, { id: 'c', n: 3 }], false)).toBe('cba');
  expect(apply([{ id: 'd', n: 9 }, { id: 'a', n: 8 }, { id: 'b', n: 2 }, { id: 'c', n: 3 }], true)).toBe('cbad');
  expect(apply([{ id: 'd', n: 9 }, { id: 'a', n: 8 }, { id: 'c', n: 3 }], true)).toBe('cad');
  expect(apply([{ id: 'a', n: 8 }, { id: 'c', n: 3 }, { id: 'd', n: 9 }], false)).toBe('dac');
  expect(apply([{ id: 'a', n: 9 }, { id: 'c', n: 9 }, { id: 'd', n: 9 }], false)).toBe('dac'); // equal rows keep their places
  expect(apply([{ id: 'a', n: 9 }, { id: 'c', n: 10 }, { id: 'd', n: 9 }], true, 'another')).toBe('cda'); // another order was requested
});

test('shift selects a range, and selecting all twice selects nothing', () => {
  const selection = new Selection();
  selection.toggle('b');
  selection.extend(['a', 'b', 'c', 'd'], 'd');
  expect([...selection.keys]).toEqual(['b', 'c', 'd']);
  selection.toggleAll(['a', 'b']);
  expect(selection.size).toBe(4);
  selection.toggleAll(['a', 'b']);
  expect([...selection.keys]).toEqual(['c', 'd']);
});

test('g then t goes to the topics; t alone, or much later, does not', () => {
  const keys = new KeySequence();
  expect(keys.press('g', 0)).toBeNull();
  expect(keys.press('t', 300)).toEqual({ do: 'go', path: '/topics' });
  expect(keys.press('t', 600)).toBeNull();
  expect(keys.press('g', 1000)).toBeNull();
  expect(keys.press('t', 9000)).toBeNull();
  expect(keys.press('j', 9100)).toEqual({ do: 'move', rows: 1 });
  expect(keys.press('g', 9200)).toBeNull();
  expect(keys.press('j', 9300)).toEqual({ do: 'move', rows: 1 }); // a sequence that leads nowhere swallows no key
});

test('every page has a parent, and the overview is its own', () => {
  expect(parentOf({ page: 'channel', topic: 't', channel: 'c' })).toEqual({ page: 'topic', topic: 't' });
  expect(parentOf({ page: 'node', node: 'n' })).toEqual({ page: 'nodes' });
  expect(parentOf({ page: 'overview' })).toEqual({ page: 'overview' });
});

test('a name that begins with the word scores more than one that contains it', () => {
  const best = (...texts: string[]): string | undefined => texts.sort((a, b) => (fit(b, ['pay']) ?? -1) - (fit(a, ['pay']) ?? -1))[0];
  expect(best('repayments', 'payments', 'orders.pay')).toBe('payments');
  expect(fit('orders', ['pay'])).toBeNull();
});

test('the palette finds places, and actions on the named or current topic', () => {
  const shown = snapshot([channel('orders', 'billing'), channel('orders', 'audit')]);
  const ask = (typed: string, mayAct = true) =>
    paletteItems(shown, typed, { here: { page: 'topic', topic: 'orders' }, mayActOn: () => mayAct, pages: [{ href: '/nodes', text: 'Nodes' }], settings: [] });
  expect(ask('bill')[0]).toMatchObject({ text: 'orders / billing', run: { do: 'go', href: '/topics/orders/billing' } });
  expect(ask('pause bill')[0]).toMatchObject({ run: { do: 'ask', request: { action: 'pause', topic: 'orders', channel: 'billing' } } });
  expect(ask('delete').map(({ text }) => text)).toEqual(['Delete orders']);
  expect(ask('delete', false)).toEqual([]);
  expect(ask('nod')[0]).toMatchObject({ run: { do: 'go', href: '/nodes' } });
});

test('the palette offers no action on a topic on which the user may not act', () => {
  const shown = snapshot([channel('orders', 'billing'), channel('other', 'audit')]);
  const ask = (typed: string, here = 'other') =>
    paletteItems(shown, typed, {
      here: { page: 'topic', topic: here },
      mayActOn: (topic) => topic === 'orders',
      mayReadOf: (topic) => topic === 'orders',
      pages: [],
      settings: [],
    })
      .filter(({ kind }) => kind === 'action')
      .map(({ text }) => text);
  for (const typed of ['', 'delete', 'delete other', 'empty audit', 'publish to', 'publish to other', 'tail other', 'messages of audit']) expect(ask(typed)).toEqual([]);
  expect(ask('delete orders')).toEqual(['Delete orders', 'Delete orders / billing']);
  expect(ask('tail orders')).toEqual(['Tail orders']);
  expect(ask('', 'orders').sort()).toEqual(['Delete orders', 'Empty orders', 'Pause orders', 'Unpause orders']);
});

test('the filters find growing, unread, paused and timing-out rows', () => {
  const history = new History(100);
  const rows = (second: number): ChannelRow[] => [
    channel('t', 'grows', { depth: 10 * second }),
    channel('t', 'full', { depth: 100_000 + (second % 2) }),
    channel('t', 'unread', { client_count: 0 }),
    channel('t', 'held', { paused: true }),
    channel('t', 'late', { timeout_rate: second === 20 ? 1 : 0 }),
  ];
  for (let second = 1; second <= 40; second++) history.record(snapshot(rows(second), second));
  const names = (key: string): string[] =>
    narrowed(rows(40), channelFilters(history), new Set([key]), () => true).rows.map(({ name }) => name);
  expect(['growing', 'unread', 'paused', 'timeouts'].map(names)).toEqual([['grows'], ['unread'], ['held'], ['late']]);
  const filters = channelFilters(history);
  const { searched, rows: left } = narrowed(rows(40), filters, new Set(), (row) => row.name !== 'held');
  expect(left).toHaveLength(4);
  expect(withCounts({ searched, filters }).find(({ key }) => key === 'paused')?.count).toBe(0); // of the rows that the search found
});

test('growth is known after ten polls, from means and not from a burst at the end', () => {
  const history = new History(100);
  for (let second = 1; second <= 9; second++) history.record(snapshot([channel('t', 'c', { depth: second * 5 })], second));
  expect(history.growth(channelSeries('t', 'c'), 'depth', 60)).toBeNull();
  for (let second = 10; second <= 30; second++) history.record(snapshot([channel('t', 'c', { depth: second * 5 })], second));
  expect(history.growth(channelSeries('t', 'c'), 'depth', 60)).toBeCloseTo(5);
  expect(isGrowing(1000, 0.1)).toBe(false);
  expect(isGrowing(1000, 5)).toBe(true);
  expect(isGrowing(0, null)).toBe(false);
});

test('an hour is read from the history of the platform and then of the browser, without a poll twice', () => {
  const past: Columns = [[10, 20, 30], [1, 2, 3]];
  expect(joined(past, [[30, 31], [9, 8]])).toEqual([[10, 20, 30, 31], [1, 2, 9, 8]]);
  expect(joined(past, [[], []])).toEqual(past);
  expect(joined(null, [[5], [1]])).toEqual([[5], [1]]);
  // The platform may know times at which the page was on another view; times that nobody knows are gaps.
  expect(joined(past, [[9, 15, 21, 31, 35], [7, null, null, 8, null]])).toEqual([[9, 10, 20, 30, 31, 35], [7, 1, 2, 3, 8, null]]);
  expect(joined(past, [[31, 35, 36], [8, null, 5]])).toEqual([[10, 20, 30, 31, 35, 36], [1, 2, 3, 8, null, 5]]);
  expect(within([[10, 20, 30], [1, null, 3]], 20, 40)).toEqual([[20, 30], [null, 3]]);
});

test('the dialog of many closes when the platform has taken the job, and otherwise says why not', async () => {
  const targets = [{ topic: 'a' }, { topic: 'b' }];
  const start = vi.fn().mockRejectedValueOnce(new Error('you may not')).mockResolvedValue(undefined);
  const store = new BulkStore(start);
  store.ask('pause', targets);
  await store.confirm();
  expect(store.asked).toMatchObject({ step: 'asking', error: 'you may not' });
  await store.confirm();
  expect(store.asked).toEqual({ step: 'closed' });
  expect(start).toHaveBeenCalledWith('pause', targets);
});
