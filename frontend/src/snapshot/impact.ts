/** The impact of an action, counted in the live snapshot, for its confirmation. */
import type { ActionRequest, ChannelRow } from '../api/types';
import { channelKey, channelsOf, type ClusterSnapshot } from './snapshot';

export type Impact = {
  /** Messages that would be deleted (empty, delete) or withheld (pause). */
  messages: number;
  inFlight: number;
  deferred: number;
  channels: number;
  clients: number;
  /** Nodes that have the topic or channel. */
  nodes: string[];
};

const sum = (channels: ChannelRow[], count: (channel: ChannelRow) => number): number =>
  channels.reduce((total, channel) => total + count(channel), 0);

/**
 * Emptying or pausing a topic affects only messages that no channel has received; deleting it also deletes the channels
 * with their messages. Emptying a channel also drops its messages in flight and deferred ones.
 */
export function impactOf(snapshot: ClusterSnapshot, request: ActionRequest): Impact {
  const topic = snapshot.topics.get(request.topic);
  if (request.channel !== undefined) {
    const channel = snapshot.channels.get(channelKey({ topic: request.topic, name: request.channel }));
    const channels = channel ? [channel] : [];
    return {
      messages: sum(channels, (row) => row.depth),
      inFlight: sum(channels, (row) => row.in_flight_count),
      deferred: sum(channels, (row) => row.deferred_count),
      channels: channels.length,
      clients: sum(channels, (row) => row.client_count),
      nodes: channel?.nodes.map((node) => node.node) ?? [],
    };
  }
  const channels = channelsOf(snapshot, request.topic);
  const taken = request.action === 'delete' ? channels : [];
  return {
    messages: (topic?.depth ?? 0) + sum(taken, (row) => row.depth),
    inFlight: sum(taken, (row) => row.in_flight_count),
    deferred: sum(taken, (row) => row.deferred_count),
    channels: channels.length,
    clients: sum(channels, (row) => row.client_count),
    nodes: topic?.nodes.map((node) => node.node) ?? [],
  };
}

/** Whether the action deletes messages and therefore requires the name. */
export function destroys(request: Pick<ActionRequest, 'action'>): boolean {
  return request.action === 'empty' || request.action === 'delete';
}

/** Without creating, which requires a name and destroys nothing. */
const CONSEQUENCES: Record<string, string> = {
  'pause topic': 'New messages stay in the topic and no longer reach its channels until it is unpaused.',
  'pause channel': 'Its clients get no further messages until it is unpaused. Messages in flight can still be finished.',
  'unpause topic': 'Waiting messages continue to the channels.',
  'unpause channel': 'Its clients receive messages again.',
  'empty topic': 'Messages that no channel has received yet are deleted. This cannot be undone.',
  'empty channel': 'Its waiting, in-flight and deferred messages are deleted. This cannot be undone.',
  'delete topic': 'The topic, its channels and every message in them are removed; clients are disconnected. This cannot be undone.',
  'delete channel': 'The channel and every message in it are removed; its clients are disconnected. This cannot be undone.',
};

/** The consequence of an action on a topic or channel, as text. */
export function consequenceOf(action: string, kind: 'topic' | 'channel'): string {
  return CONSEQUENCES[`${action} ${kind}`] ?? '';
}

const NAME = /^[.a-zA-Z0-9_-]{1,64}$/;

/** Why `name` is invalid as a topic or channel name; null if it is valid. */
export function nameFault(name: string): string | null {
  if (name === '') return 'Enter a name.';
  const plain = name.endsWith('#ephemeral') ? name.slice(0, -'#ephemeral'.length) : name;
  if (name.length > 64) return `At most 64 characters; this has ${name.length}.`;
  if (!NAME.test(plain)) return 'Letters, digits, and . _ - only, with #ephemeral at the end if it should not be stored on disk.';
  return null;
}
