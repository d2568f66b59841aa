import { expect, test } from 'vitest';
import type { ChannelRow } from '../api/types';
import { channelSeries, History } from '../history/history';
import { deadFilters, narrowed, withCounts } from './filters';
import type { ClusterSnapshot } from './snapshot';

const channel = (name: string, more: Partial<ChannelRow>): ChannelRow =>
  ({ topic: 'orders', name, dead_count: 0, dead_attempts_count: 0, dead_expired_count: 0, dead_overflow_count: 0, dead_operator_count: 0, death_rate: 0, client_count: 1, nodes: [], ...more }) as ChannelRow;
const rows = [
  channel('billing', { dead_count: 3, dead_attempts_count: 2, dead_operator_count: 1, death_rate: 0.5 }),
  channel('archive', { dead_count: 4, dead_expired_count: 4, client_count: 0 }),
];
const names = (...chosen: string[]): string[] => narrowed(rows, deadFilters(new History()), new Set(chosen), () => true).rows.map((row) => row.name);

test('channels with dead messages are filtered by reason, and by whether messages die now', () => {
  expect(names('attempts')).toEqual(['billing']);
  expect(names('expired', 'unread')).toEqual(['archive']);
  expect(names('overflow')).toEqual([]);
  expect(names('dying')).toEqual(['billing']);
  const choices = withCounts({ searched: rows, filters: deadFilters(new History()) });
  expect(choices.map(({ key, count }) => [key, count])).toEqual([['dying', 1], ['attempts', 1], ['expired', 1], ['overflow', 0], ['operator', 1], ['unread', 1]]);
});

test('whether messages die is not known before some snapshots', () => {
  const quiet = [channel('billing', { dead_count: 3, dead_attempts_count: 3 })];
  const dying = (history: History): number | null | undefined => withCounts({ searched: quiet, filters: deadFilters(history) })[0]?.count;
  const history = new History();
  expect(dying(history)).toBeNull();
  const channels = new Map([['orders/billing', quiet[0] as ChannelRow]]);
  for (let version = 1; version <= 10; version++) history.record({ version, takenAt: version * 1000, nodes: new Map(), topics: new Map(), channels });
  expect(dying(history)).toBe(0);
});

test('dead messages and deaths have a last minute', () => {
  const history = new History();
  const shown = (version: number, dead_count: number): ClusterSnapshot => ({
    version,
    takenAt: version * 1000,
    nodes: new Map(),
    topics: new Map(),
    channels: new Map([['orders/billing', channel('billing', { dead_count, death_rate: dead_count })]]),
  });
  history.record(shown(1, 5));
  history.record(shown(2, 7));
  expect(history.recent(channelSeries('orders', 'billing'), 'dead', 60)).toEqual([5, 7]);
  expect(history.recent(channelSeries('orders', 'billing'), 'death_rate', 60)).toEqual([5, 7]);
});
