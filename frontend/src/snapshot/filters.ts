/** Filters of lists: growing backlog, no consumers, paused, timing out. */
import type { ChannelRow, TopicRow } from '../api/types';
import { channelSeries, topicSeries, type History } from '../history/history';
import type { ClusterSnapshot } from './snapshot';

export type Filter<Row> = { key: string; title: string; help: string; test: (row: Row) => boolean };

/** Number of snapshots for growth and timeouts. */
export const TREND_BEATS = 60;

/** Whether a backlog grows for good: noticeably against its size and not by a message now and then. */
export function isGrowing(depth: number, growth: number | null): boolean {
  return growth !== null && growth * TREND_BEATS >= Math.max(3, depth * 0.02);
}

export function channelFilters(history: History): Filter<ChannelRow>[] {
  return [
    {
      key: 'growing',
      title: 'Backlog growing',
      help: 'More messages waiting than a minute ago',
      test: (row) => isGrowing(row.depth, history.growth(channelSeries(row.topic, row.name), 'depth', TREND_BEATS)),
    },
    { key: 'unread', title: 'No consumers', help: 'No client is subscribed', test: (row) => row.client_count === 0 },
    { key: 'paused', title: 'Paused', help: 'Paused on some node', test: (row) => row.paused },
    {
      key: 'timeouts',
      title: 'Timing out',
      help: 'Some client let a message time out within the last minute',
      test: (row) =>
        (row.timeout_rate ?? 0) > 0 || history.any(channelSeries(row.topic, row.name), 'timeout_rate', TREND_BEATS),
    },
  ];
}

/** A topic is paused, unread or timing out where any of its channels is; it grows with all that waits in it. */
export function topicFilters(
  snapshot: ClusterSnapshot,
  history: History,
  { backlog }: { backlog: ReadonlyMap<string, number> },
): Filter<TopicRow>[] {
  return channelFilters(history).map(({ key, title, help, test }): Filter<TopicRow> => {
    if (key === 'growing') {
      return {
        key,
        title,
        help,
        test: (row) =>
          isGrowing(backlog.get(row.name) ?? row.depth, history.growth(topicSeries(row.name), 'depth', TREND_BEATS)),
      };
    }
    const having = new Set<string>();
    for (const channel of snapshot.channels.values()) if (test(channel)) having.add(channel.topic);
    return {
      key,
      title,
      help: `${help}: one of the topic’s channels, or the topic itself`,
      test: (row) =>
        having.has(row.name) ||
        (key === 'paused' && row.paused) ||
        (key === 'unread' && row.channel_count === 0 && row.nodes.length > 0),
    };
  });
}

/** Rows that pass every chosen filter and the search; and, for each filter, how many of those found it would leave. */
export function narrowed<Row>(
  rows: readonly Row[],
  filters: readonly Filter<Row>[],
  chosen: ReadonlySet<string>,
  found: (row: Row) => boolean,
): { rows: Row[]; choices: { key: string; title: string; help: string; count: number }[] } {
  const searched = rows.filter(found);
  const choices = filters.map(({ key, title, help, test }) => ({ key, title, help, count: searched.filter(test).length }));
  const asked = filters.filter(({ key }) => chosen.has(key));
  return { rows: asked.length === 0 ? searched : searched.filter((row) => asked.every(({ test }) => test(row))), choices };
}
