/** Nodes that do not answer. Their figures are those of their last answer. */
import type { NodeRow } from '../api/types';
import { count, plural, timeText } from '../format/format';
import type { Route } from '../navigation/routes';
import { channelKey, channelsOf, type ClusterSnapshot } from './snapshot';

/** Whether the snapshot has figures of a node: not of one that has not answered since the collector started. */
export const isRead = (node: NodeRow): boolean => node.start_time !== 0;

/** A figure of a node; null, unknown, if it is down and has not been read. */
export function figureOf(node: NodeRow, figure: 'depth' | 'topic_count' | 'channel_count' | 'client_count'): number | null {
  return node.state === 'down' && !isRead(node) ? null : node[figure];
}

/** The last that went down comes first. */
export const downNodes = (snapshot: ClusterSnapshot): NodeRow[] =>
  [...snapshot.nodes.values()].filter((node) => node.state === 'down').sort((a, b) => (b.down_since ?? 0) - (a.down_since ?? 0));

/** Of the nodes that are down, those with one of `shares`, and those that have not been read and may have one. */
export function downAmong(snapshot: ClusterSnapshot, shares: readonly { node: string }[]): NodeRow[] {
  return downNodes(snapshot).filter((node) => !isRead(node) || shares.some((share) => share.node === node.id));
}

/** `has not answered since 17:04:09`. `now`: Unix milliseconds. */
export function unansweredText(node: NodeRow, now: number): string {
  if (node.down_since === null) return 'has not answered yet';
  return `has not answered since ${timeText(node.down_since, now)}`;
}

/** What is old of the figures that a page shows, and the nodes from which it comes. */
export type OldFigures = { node: NodeRow; figures: string };

/** For each node that is down and concerns the page, which of the page's figures are old. Empty if all are recent. */
export function oldFigures(snapshot: ClusterSnapshot, route: Route): OldFigures[] {
  switch (route.page) {
    case 'topic': {
      const topic = snapshot.topics.get(route.topic);
      const channels = channelsOf(snapshot, route.topic);
      return downAmong(snapshot, topic?.nodes ?? []).map((node) => {
        const own = topic?.nodes.find((share) => share.node === node.id);
        const held = channels.flatMap((channel) => channel.nodes.filter((share) => share.node === node.id));
        return {
          node,
          figures: listed(node, [
            `depth ${count(sum(held, 'depth') + (own?.depth ?? 0))}`,
            `${count(sum(held, 'in_flight_count'))} in flight`,
            plural(sum(held, 'client_count'), 'client'),
          ]),
        };
      });
    }
    case 'channel': {
      const shares = snapshot.channels.get(channelKey({ topic: route.topic, name: route.channel }))?.nodes ?? [];
      return downAmong(snapshot, shares).map((node) => {
        const held = shares.filter((share) => share.node === node.id);
        return {
          node,
          figures: `${listed(node, [
            `depth ${count(sum(held, 'depth'))}`,
            `${count(sum(held, 'in_flight_count'))} in flight`,
            plural(sum(held, 'client_count'), 'client'),
          ])} Its clients are not listed.`,
        };
      });
    }
    case 'node':
      return downNodes(snapshot)
        .filter((node) => node.id === route.node)
        .map((node) => ({ node, figures: !isRead(node) ? 'None of its figures is known.' : 'All figures on this page are from then.' }));
    case 'clients':
      return downNodes(snapshot).map((node) => ({ node, figures: 'Its clients are not listed.' }));
    case 'counter':
      return downNodes(snapshot).map((node) => ({
        node,
        figures: !isRead(node) ? 'Its messages are not counted.' : 'Its messages are counted as of then.',
      }));
    case 'overview':
    case 'topics':
    case 'channels':
    case 'nodes':
      return downNodes(snapshot).map((node) => ({
        node,
        figures: listed(node, [`depth ${count(node.depth)}`, plural(node.client_count, 'client')]),
      }));
    default:
      return [];
  }
}

function listed(node: NodeRow, figures: string[]): string {
  if (!isRead(node)) return 'Figures here do not include it.';
  return `Its share of the figures here is from then: ${figures.join(', ')}. Rates do not include it.`;
}

function sum<Name extends string>(shares: readonly Record<Name, number>[], name: Name): number {
  return shares.reduce((total, share) => total + share[name], 0);
}
