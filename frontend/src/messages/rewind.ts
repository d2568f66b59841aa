/** The presets of the rewind dialog, their times, and the cost of a rewind. */
import type { RewindPreview } from '../api/types';
import { dateTime, plural } from '../format/format';
import { asOf, type Cost } from '../snapshot/cost';

const MINUTE_MS = 60_000;

export const PRESETS = [
  { key: '10m', title: '10 minutes ago', ms: 10 * MINUTE_MS },
  { key: '1h', title: '1 hour ago', ms: 60 * MINUTE_MS },
  { key: '6h', title: '6 hours ago', ms: 6 * 60 * MINUTE_MS },
  { key: '1d', title: '1 day ago', ms: 24 * 60 * MINUTE_MS },
  { key: '7d', title: '7 days ago', ms: 7 * 24 * 60 * MINUTE_MS },
  { key: 'at', title: 'A point in time…', ms: null },
] as const;

/** The time of a choice; `typed` is the value of a datetime-local input, in the viewer's zone, for the last choice. */
export function sinceOf(preset: string, typed: string, now: Date): { at: Date } | { fault: string } {
  const chosen = PRESETS.find((each) => each.key === preset);
  if (chosen?.ms != null) return { at: new Date(now.getTime() - chosen.ms) };
  const at = new Date(typed);
  if (typed === '' || Number.isNaN(at.getTime())) return { fault: 'A date and a time are needed.' };
  if (at > now) return { fault: 'This time is in the future.' };
  return { at };
}

/** The messages that a rewind redelivers, as counted by each node. `clients`: of the channel now. `now`: Unix milliseconds. */
export function rewindCost({ counted_at, nodes }: RewindPreview, clients: number, now: number): Cost {
  const known = nodes.filter((part) => part.messages !== null);
  const again = known.reduce((sum, part) => sum + (part.messages ?? 0), 0);
  const oldest = known.reduce<number | null>((first, { oldest }) => (oldest !== null && (first === null || oldest < first) ? oldest : first), null);
  const where = known.length === 1 ? `node ${known[0]?.node}` : plural(known.length, 'node');
  const gone = known.filter((part) => !part.complete).map((part) => part.node);
  const unknown = nodes.filter((part) => part.messages === null);
  return {
    sentences: [
      known.length === 0
        ? 'The number of messages to redeliver is unknown: no node has counted them.'
        : again === 0
          ? `No messages are delivered again: ${where} ${known.length === 1 ? 'stores' : 'store'} no delivered messages of that time.`
          : `${plural(again, 'message')} on ${where} ${again === 1 ? 'is' : 'are'} delivered again${oldest === null ? '' : `, the oldest of ${dateTime(oldest)}`}.`,
      `${clients === 0 ? 'No clients are' : clients === 1 ? '1 client is' : `${plural(clients, 'client')} are`} subscribed to receive them.`,
      ...(gone.length > 0 ? [`Messages of that time may be missing, because ${gone.join(', ')} no longer ${gone.length === 1 ? 'stores' : 'store'} older ones.`] : []),
    ],
    silent:
      unknown.length === 0
        ? []
        : [
            `${known.length} of ${plural(nodes.length, 'node')} ${known.length === 1 ? 'has' : 'have'} counted.`,
            ...unknown.map((part) => `${part.node}: unknown, ${part.error}.`),
          ],
    asOf: `Counted by the nodes. ${asOf(counted_at, now)}`,
    nodes: known.map((part) => part.node),
    lost: 0,
  };
}
