/** The drain of a node: its choices, what it does, counted in the live snapshot, and how far it is. */
import type { NodeRow } from '../api/types';
import { duration, plural, timeText } from '../format/format';
import { asOf, type Cost } from './cost';
import type { ClusterSnapshot } from './snapshot';

const MINUTE_S = 60;

/** When the process ends although messages are left; 0: only when the node is empty. */
export const TIMEOUTS = [
  { seconds: MINUTE_S, title: '1 minute' },
  { seconds: 10 * MINUTE_S, title: '10 minutes' },
  { seconds: 60 * MINUTE_S, title: '1 hour' },
  { seconds: 24 * 60 * MINUTE_S, title: '1 day' },
  { seconds: 0, title: 'No limit: only when it is empty' },
] as const;
export const DEFAULT_TIMEOUT_S = 10 * MINUTE_S;

/** `stuck`: those of the messages that are paused or have no client. */
export type Remaining = { messages: number; stuck: number; clients: number };

/** What a node has to finish: waiting, in flight and deferred. Dead messages stay. */
export function remainingOn(snapshot: ClusterSnapshot, node: string): Remaining {
  const remaining: Remaining = { messages: 0, stuck: 0, clients: 0 };
  const add = (messages: number, isStuck: boolean): void => {
    remaining.messages += messages;
    if (isStuck) remaining.stuck += messages;
  };
  const routed = new Set<string>();
  for (const { topic, nodes } of snapshot.channels.values()) {
    for (const share of nodes) {
      if (share.node !== node) continue;
      routed.add(topic);
      remaining.clients += share.client_count;
      add(share.depth + share.in_flight_count + share.deferred_count, share.paused || share.client_count === 0);
    }
  }
  for (const { name, nodes } of snapshot.topics.values()) {
    for (const share of nodes) if (share.node === node) add(share.depth, share.paused || !routed.has(name));
  }
  return remaining;
}

const be = (n: number): string => (n === 1 ? 'is' : 'are');

const publishes = (taken: boolean): string =>
  taken ? 'It takes publishes until then.' : 'It refuses publishes: producers have to publish to another node.';

/** Messages that keep the node, and what becomes of them. Empty without any. */
function stuckSentences({ stuck }: Remaining, hasDeadline: boolean): string[] {
  if (stuck === 0) return [];
  const after = hasDeadline
    ? 'what is left at the deadline stays on the disk, and the next start delivers it'
    : `the process does not end before ${stuck === 1 ? 'it is' : 'they are'} finished or deleted`;
  return [`${plural(stuck, 'message')} ${be(stuck)} paused or ${stuck === 1 ? 'has' : 'have'} no client: ${after}.`];
}

/** What a drain does. `timeoutS`: as in TIMEOUTS. `now`: Unix milliseconds. */
export function drainCost(snapshot: ClusterSnapshot, node: string, timeoutS: number, takesPublishes: boolean, now: number): Cost {
  const remaining = remainingOn(snapshot, node);
  const { messages, clients } = remaining;
  const deadline = timeoutS === 0 ? '' : `, at the latest at ${timeText(now + timeoutS * 1000, now)}`;
  return {
    sentences: [
      messages === 0
        ? 'No messages are left, so its process ends at once.'
        : `Its process ends when its ${plural(messages, 'message')} ${be(messages)} finished${deadline}.`,
      `It leaves the registries at once: clients that look it up do not find it, and ${clients === 0 ? 'none is connected' : `${plural(clients, 'client')} ${clients === 1 ? 'stays' : 'stay'} connected`}.`,
      publishes(takesPublishes),
      ...stuckSentences(remaining, timeoutS > 0),
    ],
    silent: [],
    asOf: asOf(snapshot.takenAt, now),
    nodes: [node],
    lost: 0,
  };
}

/** `1,234 messages are left` */
export const leftText = (messages: number): string => `${plural(messages, 'message')} ${be(messages)} left`;

/** How far the drain of a node is, in sentences. */
export function drainProgress(snapshot: ClusterSnapshot, node: string, drain: NonNullable<NodeRow['drain']>): string[] {
  const remaining = remainingOn(snapshot, node);
  const { ends_at: endsAt, since, takes_publishes: takesPublishes } = drain;
  const now = snapshot.takenAt;
  const left = endsAt === null ? 0 : Math.max(0, Math.round((endsAt - now) / 1000) * 1000);
  const deadline = endsAt === null ? '' : `, at the latest at ${timeText(endsAt, now)}${left > 0 ? ` (in ${duration(left)})` : ''}`;
  return [
    `It has been draining since ${timeText(since, now)}. Its process ends when no messages are left${deadline}.`,
    publishes(takesPublishes),
    `${remaining.clients === 0 ? 'No clients are' : `${plural(remaining.clients, 'client')} ${be(remaining.clients)}`} connected.`,
    ...stuckSentences(remaining, endsAt !== null),
  ];
}
