/** Filters of lists: growing backlog, no consumers, paused, timing out; of dead messages, their reasons. */
import type { ChannelRow, TopicRow } from '../api/types';
import { channelSeries, topicSeries, type History } from '../history/history';
import { REASONS } from '../messages/dead';
import type { ClusterSnapshot } from './snapshot';

/** `known`: whether it is known yet if the row passes; always by default. */
export type Filter<Row> = { key: string; title: string; help: string; test: (row: Row) => boolean; known?: (row: Row) => boolean };

/** Number of snapshots for growth and timeouts. */
export const TREND_POLLS = 60;

/** Whether a backlog grows noticeably, compared with its size, and by more than single messages. */
export function isGrowing(depth: number, growth: number | null): boolean {
  return growth !== null && growth * TREND_POLLS >= Math.max(3, depth * 0.02);
}

export function channelFilters(history: History): Filter<ChannelRow>[] {
  return [
    {
      key: 'growing',
      title: 'Backlog growing',
      help: 'More messages waiting than a minute ago',
      test: (row) => isGrowing(row.depth, history.growth(channelSeries(row.topic, row.name), 'depth', TREND_POLLS)),
      known: (row) => history.covers(channelSeries(row.topic, row.name), 'depth', TREND_POLLS),
    },
    { key: 'unread', title: 'No consumers', help: 'No client is subscribed', test: (row) => row.client_count === 0 },
    { key: 'paused', title: 'Paused', help: 'Paused on some node', test: (row) => row.paused },
    {
      key: 'timeouts',
      title: 'Timing out',
      help: 'Some client let a message time out within the last minute',
      test: (row) =>
        (row.timeout_rate ?? 0) > 0 || history.any(channelSeries(row.topic, row.name), 'timeout_rate', TREND_POLLS),
      known: (row) => history.covers(channelSeries(row.topic, row.name), 'timeout_rate', TREND_POLLS),
    },
  ];
}

/** Filters of the channels with dead messages. */
export function deadFilters(history: History): Filter<ChannelRow>[] {
  return [
    {
      key: 'dying',
      title: 'Dying',
      help: 'A message died, or more are dead than before, within the last minute',
      test: (row) => {
        const series = channelSeries(row.topic, row.name);
        return (row.death_rate ?? 0) > 0 || (history.growth(series, 'dead', TREND_POLLS) ?? 0) > 0;
      },
      known: (row) => history.covers(channelSeries(row.topic, row.name), 'dead', TREND_POLLS),
    },
    ...REASONS.map(({ key, title, help, of }): Filter<ChannelRow> => ({ key, title, help, test: (row) => of(row) > 0 })),
    { key: 'unread', title: 'No consumers', help: 'No client is subscribed', test: (row) => row.client_count === 0 },
  ];
}

/** Names of the topics that have a channel that passes `test`. */
function topicsOf(snapshot: ClusterSnapshot, test: (channel: ChannelRow) => boolean): Set<string> {
  const topics = new Set<string>();
  for (const channel of snapshot.channels.values()) if (test(channel)) topics.add(channel.topic);
  return topics;
}

/** A topic is paused, unread or timing out if any of its channels is; its growth is that of its whole backlog. */
export function topicFilters(
  snapshot: ClusterSnapshot,
  history: History,
  { backlog }: { backlog: ReadonlyMap<string, number> },
): Filter<TopicRow>[] {
  return channelFilters(history).map(({ key, title, help, test, known }): Filter<TopicRow> => {
    if (key === 'growing') {
      return {
        key,
        title,
        help,
        test: (row) =>
          isGrowing(backlog.get(row.name) ?? row.depth, history.growth(topicSeries(row.name), 'depth', TREND_POLLS)),
        known: (row) => history.covers(topicSeries(row.name), 'depth', TREND_POLLS),
      };
    }
    let passing: ReadonlySet<string> | undefined;
    let isKnown: boolean | undefined;
    return {
      key,
      title,
      help: `${help}: one of the topic’s channels, or the topic itself`,
      test: (row) =>
        (passing ??= topicsOf(snapshot, test)).has(row.name) ||
        (key === 'paused' && row.paused) ||
        (key === 'unread' && row.channel_count === 0 && row.nodes.length > 0),
      known: () => (isKnown ??= known === undefined || snapshot.channels.size === 0 || [...snapshot.channels.values()].some(known)),
    };
  });
}

/** A filter with the number of rows that pass it; null while this is not known for any row. */
export type FilterChoice = { key: string; title: string; help: string; count: number | null };

/** Rows that the search finds, and those of them that pass every chosen filter. */
export function narrowed<Row>(
  rows: readonly Row[],
  filters: readonly Filter<Row>[],
  chosen: ReadonlySet<string>,
  found: (row: Row) => boolean,
): { searched: Row[]; rows: Row[] } {
  const searched = rows.filter(found);
  const active = filters.filter(({ key }) => chosen.has(key));
  return { searched, rows: active.length === 0 ? searched : searched.filter((row) => active.every(({ test }) => test(row))) };
}

/** The filters, each with the number of searched rows that pass it. */
export function withCounts<Row>({ searched, filters }: { searched: readonly Row[]; filters: readonly Filter<Row>[] }): FilterChoice[] {
  return filters.map(({ key, title, help, test, known }) => {
    let count = 0;
    for (const row of searched) if (test(row)) count += 1;
    const unknown = count === 0 && known !== undefined && searched.length > 0 && !searched.some(known);
    return { key, title, help, count: unknown ? null : count };
  });
}
