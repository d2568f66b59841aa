/** Dead messages: the reasons of deaths, and the cost of an action on all that were chosen. */
import type { ChannelRow, DeadAction, DeadCount, DeathReason } from '../api/types';
import { count, duration, plural } from '../format/format';
import { asOf, type Cost } from '../snapshot/cost';
import { channelKey } from '../snapshot/snapshot';

type Reason = { key: DeathReason; title: string; help: string; of: (row: ChannelRow) => number };

export const REASONS: readonly Reason[] = [
  { key: 'attempts', title: 'Attempts', help: 'Their deliveries failed too often', of: (row) => row.dead_attempts_count },
  { key: 'expired', title: 'Expired', help: 'They were older than the TTL of the channel', of: (row) => row.dead_expired_count },
  { key: 'overflow', title: 'Overflow', help: 'They were beyond a bound of the channel', of: (row) => row.dead_overflow_count },
  { key: 'operator', title: 'Operator', help: 'An operator buried them', of: (row) => row.dead_operator_count },
];

const OF_ONE: Record<string, string> = {
  attempts: 'its deliveries failed too often',
  expired: 'it was older than the TTL of the channel',
  overflow: 'it was beyond a bound of the channel',
  operator: 'an operator buried it',
};

/** Why one message died; a reason of a later release as it is. */
export const reasonOfOne = (reason: string): string => OF_ONE[reason] ?? reason;

/** `3 attempts, 1 operator`. */
export const byReason = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([reason, number]) => `${count(number)} ${reason}`)
    .join(', ');

export const ACTIONS: Record<DeadAction, { label: string; past: string }> = {
  requeue: { label: 'Requeue', past: 'requeued' },
  remove: { label: 'Remove', past: 'removed' },
};

/** brokerd’s limit. */
const MAX_RATE = 1_000_000;

/** Messages per second as typed; 0, from an empty text, is all at once. Null if it is not a rate. */
export function rateOf(text: string): number | null {
  const digits = text.trim().replaceAll(',', '');
  if (digits === '') return 0;
  const value = /^\d{1,7}$/.test(digits) ? Number(digits) : 0;
  return value >= 1 && value <= MAX_RATE ? value : null;
}

/** The number of chosen messages. */
export const chosenIn = ({ parts }: DeadCount): number => parts.reduce((sum, part) => sum + part.matching, 0);

/** How long the last message waits: each node defers those of each channel at even distances. */
export function lastAfterMs({ parts }: DeadCount, rate: number): number {
  return rate === 0 ? 0 : Math.max(0, ...parts.map((part) => ((part.matching - 1) * 1000) / rate));
}

function effect(action: DeadAction, found: DeadCount, rate: number): string[] {
  if (action === 'remove') return ['No consumer of the channel processes them any more. Other channels keep their copies.', 'A rewind brings back only messages that a node still stores.'];
  const poison = 'Their attempts and failures begin anew: a message that still cannot be processed dies again.';
  if (rate === 0) return ['They are ready at once.', poison];
  return [
    `Each node makes ${count(rate)} of each channel ready per second, the last after ${duration(lastAfterMs(found, rate))}.`,
    'Until then they are deferred on the nodes; cancelling the job does not change that.',
    poison,
  ];
}

/** The cost of an action on the chosen dead messages, as the nodes counted them. `now`: Unix milliseconds. */
export function deadCost(action: DeadAction, found: DeadCount, rate: number, now: number): Cost {
  const number = chosenIn(found);
  const concerned = found.parts.filter((part) => part.matching > 0);
  const nodes = [...new Set(concerned.map((part) => part.node))].sort();
  const channels = new Set(concerned.map(({ topic, channel }) => channelKey({ topic, name: channel }))).size;
  const silent = new Map(found.parts.filter((part) => part.error !== '').map((part) => [part.node, part.error]));
  const isExact = found.parts.every((part) => part.exact || part.error !== '');
  const where = `of ${plural(channels, 'channel')} on ${nodes.length === 1 ? `node ${nodes[0]}` : plural(nodes.length, 'node')}`;
  return {
    sentences:
      number === 0
        ? ['No dead message matches.']
        : [
            `${isExact ? '' : 'At most '}${plural(number, 'dead message')} ${where} ${number === 1 ? 'is' : 'are'} ${ACTIONS[action].past}.`,
            ...(isExact ? [] : ['Some channels have too many dead messages to read when each died.']),
            ...effect(action, found, rate),
            'Messages that die before the nodes are asked are included.',
          ],
    silent: [...silent].map(([node, error]) => `${node}: unknown, ${error}. The job asks it too.`),
    asOf: `Counted by the nodes. ${asOf(found.counted_at, now)}`,
    nodes,
    lost: action === 'remove' ? number : 0,
  };
}
