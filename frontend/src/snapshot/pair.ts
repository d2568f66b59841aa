/** Mirrored nodes: who leads, how far the follower is, and what a hand-over does. */
import type { NodeRow } from '../api/types';
import { bytes, duration, plural } from '../format/format';
import { asOf, type Cost } from './cost';
import type { ClusterSnapshot } from './snapshot';

export type Mirror = NonNullable<NodeRow['mirror']>;

/** `12.5 MiB behind, for 340 ms`; empty if the follower has everything. */
export function lagText({ lag_bytes: lag, lag_ms: ms }: Mirror): string {
  return lag === 0 ? '' : `${bytes(lag)} behind${ms > 0 ? `, for ${duration(ms)}` : ''}`;
}

/** The member that has everything, beside the one that leads; null while there is none. */
export const followerOf = ({ in_sync: inSync, member }: Mirror): string | null => inSync.find((each) => each !== member) ?? null;

/** The state of a pair in a few words: `mirrored, in sync`, with the lag if there is one. */
export function pairText(mirror: Mirror): string {
  return ['mirrored, in sync', lagText(mirror)].filter(Boolean).join(', ');
}

/** What it means that the primary is alone. */
export const ALONE = 'Only the member that leads has all messages: if its machine is lost, they are lost or wait until it is back. Start the other member; its log says why it is not in sync.';

/** Consumers and messages in flight on a node. */
function deliveriesOn(snapshot: ClusterSnapshot, node: string): { clients: number; inFlight: number } {
  const found = { clients: 0, inFlight: 0 };
  for (const { nodes } of snapshot.channels.values()) {
    for (const share of nodes) {
      if (share.node !== node) continue;
      found.clients += share.client_count;
      found.inFlight += share.in_flight_count;
    }
  }
  return found;
}

/** What a hand-over does. `now`: Unix milliseconds. */
export function handOverCost(snapshot: ClusterSnapshot, node: string, mirror: Mirror, now: number): Cost {
  const { clients, inFlight } = deliveriesOn(snapshot, node);
  const follower = followerOf(mirror);
  return {
    sentences: [
      follower === null ? 'No follower is in sync, so nothing will happen.' : `Member ${follower} will lead, and member ${mirror.member} will follow. Nobody is served for some seconds.`,
      `${clients === 0 ? 'Producers' : `${plural(clients, 'consumer')} and all producers`} lose their connections and have to connect again.`,
      inFlight === 0 ? 'Messages of the last FINs may be delivered again.' : `The ${plural(inFlight, 'message')} in flight will be delivered again, and so may messages of the last FINs.`,
      'Publishes without an answer have to be published again.',
    ],
    silent: [],
    asOf: asOf(snapshot.takenAt, now),
    nodes: [node],
    lost: 0,
  };
}

/** The node that represents a pair; undefined if there is none. */
export function nodeOfPair(snapshot: ClusterSnapshot, pair: string): NodeRow | undefined {
  return [...snapshot.nodes.values()].find(({ mirror }) => mirror?.pair === pair);
}
