/** The overview's rankings and warnings. */
import { downNodes, unansweredText } from './down';
import { leftText } from './drain';
import { backlogOf, channelKey, totalsOf, type ClusterSnapshot } from './snapshot';
import type { Route } from '../navigation/routes';
import { count } from '../format/format';

export type Ranked = { topic: string; value: number };

/** Number of snapshots for growth. */
export const GROWTH_POLLS = 30;

/** Smallest rate that is not shown as 0. */
export const LEAST_RATE = 0.05;

/** The first `most` items in the order of `compare`; one pass, because the items are all topics or channels. */
function firstOf<Item>(items: Iterable<Item>, most: number, compare: (one: Item, other: Item) => number): Item[] {
  const first: Item[] = [];
  for (const item of items) {
    if (first.length === most && compare(item, first[most - 1] as Item) >= 0) continue;
    const after = first.findIndex((other) => compare(item, other) < 0);
    first.splice(after < 0 ? first.length : after, 0, item);
    first.length = Math.min(first.length, most);
  }
  return first;
}

function top(entries: Iterable<[string, number | null]>, most: number, least = Number.MIN_VALUE): Ranked[] {
  const known: Ranked[] = [];
  for (const [topic, value] of entries) if (value !== null && value >= least) known.push({ topic, value });
  return firstOf(known, most, (a, b) => b.value - a.value || a.topic.localeCompare(b.topic));
}

export const busiest = (snapshot: ClusterSnapshot, most: number): Ranked[] =>
  top(
    [...snapshot.topics.values()].map((topic): [string, number | null] => [topic.name, topic.publish_rate]),
    most,
    LEAST_RATE,
  );

export const largestBacklog = (snapshot: ClusterSnapshot, most: number): Ranked[] => top(backlogOf(snapshot), most);

/** `slope` gives a topic's growth in messages per second, or null where not known. */
export function fastestGrowing(snapshot: ClusterSnapshot, slope: (topic: string) => number | null, most: number): Ranked[] {
  return top(
    [...snapshot.topics.keys()].map((topic): [string, number | null] => [topic, slope(topic)]),
    most,
    LEAST_RATE,
  );
}

export function oldestMessage(snapshot: ClusterSnapshot, most: number): Ranked[] {
  return top(
    [...snapshot.topics.values()].map((topic): [string, number | null] => [topic.name, topic.oldest_age_ms]),
    most,
  );
}

/** Whether no topic or channel has a message that is not finished. Without ages, `oldestMessage` cannot tell. */
export function isAllFinished(snapshot: ClusterSnapshot): boolean {
  const { depth, inFlight } = totalsOf(snapshot);
  return depth + inFlight === 0 && [...snapshot.channels.values()].every((channel) => channel.deferred_count === 0);
}

export type Retried = { topic: string; channel: string; timeouts: number; requeues: number };

/** Channels with timeouts or requeues, per second. */
export function mostRetried(snapshot: ClusterSnapshot, most: number): Retried[] {
  const retried: Retried[] = [];
  for (const { topic, name: channel, timeout_rate, requeue_rate } of snapshot.channels.values()) {
    const [timeouts, requeues] = [timeout_rate ?? 0, requeue_rate ?? 0];
    if (timeouts + requeues >= LEAST_RATE) retried.push({ topic, channel, timeouts, requeues });
  }
  return firstOf(retried, most, (a, b) => b.timeouts + b.requeues - a.timeouts - a.requeues);
}

export type Attention = {
  key: string;
  tone: 'bad' | 'warn';
  what: string;
  name: string;
  detail: string;
  /** Messages that wait. */
  waiting: number;
  route: Route;
};

const waiting = (depth: number): string => `${count(depth)} waiting`;

/** Problems: nodes that are down, the most recent first; unhealthy nodes; nodes that drain or are under-replicated; topics and channels by backlog. */
export function attentionOf(snapshot: ClusterSnapshot): Attention[] {
  const found: Attention[] = [];
  for (const node of downNodes(snapshot)) {
    const detail = `${unansweredText(node, snapshot.takenAt)}: ${node.error ?? ''}`;
    found.push({ key: `n ${node.id}`, tone: 'bad', what: 'down', name: node.id, detail, waiting: 0, route: { page: 'node', node: node.id } });
  }
  for (const node of snapshot.nodes.values()) {
    if (node.state === 'down') continue;
    const route: Route = { page: 'node', node: node.id };
    if (node.health !== 'OK') {
      found.push({ key: `n ${node.id}`, tone: 'bad', what: 'unhealthy', name: node.id, detail: node.health, waiting: 0, route });
    } else if (node.drain) {
      const left = node.drain.messages;
      found.push({ key: `n ${node.id}`, tone: 'warn', what: 'draining', name: node.id, detail: leftText(left), waiting: left, route });
    } else if (node.mirror?.under_replicated) {
      found.push({ key: `n ${node.id}`, tone: 'warn', what: 'under-replicated', name: node.id, detail: 'no follower is in sync', waiting: 0, route });
    }
  }
  for (const topic of snapshot.topics.values()) {
    if (!topic.paused) continue;
    found.push({
      key: `t ${topic.name}`,
      tone: 'warn',
      what: 'paused',
      name: topic.name,
      detail: `${waiting(topic.depth)} in the topic`,
      waiting: topic.depth,
      route: { page: 'topic', topic: topic.name },
    });
  }
  for (const channel of snapshot.channels.values()) {
    const name = `${channel.topic} / ${channel.name}`;
    const route: Route = { page: 'channel', topic: channel.topic, channel: channel.name };
    const add = (what: string, tone: 'bad' | 'warn', detail: string): void => {
      found.push({ key: `c ${what} ${channelKey(channel)}`, tone, what, name, detail, waiting: channel.depth, route });
    };
    if (channel.paused) add('paused', 'warn', waiting(channel.depth));
    else if (channel.client_count === 0 && channel.depth > 0) add('no clients', 'warn', waiting(channel.depth));
    if ((channel.timeout_rate ?? 0) >= LEAST_RATE) add('timing out', 'warn', `${channel.timeout_rate?.toFixed(1)} a second`);
  }
  const isBad = ({ tone }: Attention): number => Number(tone === 'bad');
  const isNode = ({ route }: Attention): number => Number(route.page === 'node');
  return found.sort((a, b) => isBad(b) - isBad(a) || isNode(b) - isNode(a) || b.waiting - a.waiting);
}
