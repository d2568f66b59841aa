/** The cluster after the last message: three tables by key. Snapshots are values; a delta makes a new one from the old. */
import { fieldsOf, setColumn } from '../api/columns';
import type { ChannelRow, Delta, NodeRow, Snapshot, TableDelta, TopicRow, ViewOf } from '../api/types';
import { madeOnce } from './texts';

export type ClusterSnapshot = {
  version: number;
  /** Unix milliseconds. */
  takenAt: number;
  nodes: ReadonlyMap<string, NodeRow>;
  topics: ReadonlyMap<string, TopicRow>;
  channels: ReadonlyMap<string, ChannelRow>;
  /** The view whose rows are as of `takenAt`; other rows are older. Absent: all rows. */
  view?: ViewOf;
};

export const nodeKey = (row: NodeRow): string => row.id;
export const topicKey = (row: TopicRow): string => row.name;
const keyOf = madeOnce((topic, name) => `${topic}/${name}`);
export const channelKey = (row: { topic: string; name: string }): string => keyOf(row.topic, row.name);

function byKey<Row>(rows: readonly Row[], key: (row: Row) => string): Map<string, Row> {
  return new Map(rows.map((row) => [key(row), row]));
}

function patched<Row extends object>(
  table: ReadonlyMap<string, Row>,
  delta: TableDelta<Row>,
  key: (row: Row) => string,
): ReadonlyMap<string, Row> {
  if (delta.put.length === 0 && delta.drop.length === 0 && delta.set.keys.length === 0) return table;
  const next = new Map(table);
  for (const dropped of delta.drop) next.delete(dropped);
  for (const row of delta.put) next.set(key(row), row);
  // Copies get their new values column by column: much faster than spreading an object of changes into each.
  const { keys, columns } = delta.set;
  const changed = keys.map((name) => {
    const row = next.get(name);
    return row && { ...row };
  });
  for (const field of fieldsOf(columns)) setColumn(changed, field, columns[field]);
  keys.forEach((name, at) => {
    const row = changed[at];
    if (row !== undefined) next.set(name, row);
  });
  return next;
}

export function fromSnapshot(snapshot: Snapshot): ClusterSnapshot {
  return {
    version: snapshot.version,
    takenAt: snapshot.taken_at,
    nodes: byKey(snapshot.nodes, nodeKey),
    topics: byKey(snapshot.topics, topicKey),
    channels: byKey(snapshot.channels, channelKey),
  };
}

/** Whether a browser that subscribed to `view` receives this topic or channel. */
export function within(view: ViewOf, topic: string, nodes: readonly { node: string }[]): boolean {
  if (view.topic !== undefined) return view.topic === topic;
  return view.node === undefined || nodes.some(({ node }) => node === view.node);
}

/** Whether the topic's rows are as of the snapshot's `takenAt`. */
export function isCurrent(snapshot: ClusterSnapshot, topic: string): boolean {
  return snapshot.view === undefined || within(snapshot.view, topic, snapshot.topics.get(topic)?.nodes ?? []);
}

/** The rows of `received`, which covers `view`, and the rows of `snapshot` outside of that view. */
export function merged(snapshot: ClusterSnapshot | null, received: ClusterSnapshot, view: ViewOf): ClusterSnapshot {
  if (snapshot === null || (view.topic === undefined && view.node === undefined)) return { ...received, view };
  const beyond = <Row extends { nodes: readonly { node: string }[] }>(
    table: ReadonlyMap<string, Row>,
    topic: (row: Row) => string,
  ) => [...table].filter(([, row]) => !within(view, topic(row), row.nodes));
  return {
    ...received,
    view,
    topics: new Map([...beyond(snapshot.topics, topicKey), ...received.topics]),
    channels: new Map([...beyond(snapshot.channels, (row) => row.topic), ...received.channels]),
  };
}

/** The snapshot after `delta`, or null if the delta does not build on this snapshot and a resync is needed. */
export function applyDelta(snapshot: ClusterSnapshot, delta: Delta): ClusterSnapshot | null {
  if (delta.base !== snapshot.version) return null;
  return {
    version: delta.version,
    takenAt: delta.taken_at,
    ...(snapshot.view && { view: snapshot.view }),
    nodes: patched(snapshot.nodes, delta.nodes, nodeKey),
    topics: patched(snapshot.topics, delta.topics, topicKey),
    channels: patched(snapshot.channels, delta.channels, channelKey),
  };
}

/**
 * Whether a missing topic or channel was deleted: every node that had it answers, and does not have it. A collector that
 * has just started lists nodes, and what they have, as they answer.
 */
export function wasDeleted(snapshot: ClusterSnapshot, holders: readonly string[]): boolean {
  return snapshot.nodes.size > 0 && holders.every((node) => snapshot.nodes.get(node)?.state === 'up');
}

/** What waits on one node: for each of its topics, its own messages in no channel and those of its channels. */
export function backlogOn(snapshot: ClusterSnapshot, node: string): Map<string, number> {
  const backlog = new Map<string, number>();
  const add = (topic: string, shares: readonly { node: string; depth: number }[]): void => {
    for (const share of shares) if (share.node === node) backlog.set(topic, (backlog.get(topic) ?? 0) + share.depth);
  };
  for (const topic of snapshot.topics.values()) add(topic.name, topic.nodes);
  for (const channel of snapshot.channels.values()) add(channel.topic, channel.nodes);
  return backlog;
}

export type Totals = {
  publishRate: number | null;
  finishRate: number | null;
  emptiedRate: number | null;
  rewoundRate: number | null;
  depth: number;
  inFlight: number;
  clients: number;
  nodesUp: number;
  nodesDown: number;
};

/** Null if no row has a rate yet, which differs from a rate of zero; 0 without rows. */
export function sumOfRates<Row>(rows: Iterable<Row>, rate: (row: Row) => number | null): number | null {
  let sum = 0;
  let known = 0;
  let count = 0;
  for (const row of rows) {
    const value = rate(row);
    count += 1;
    if (value === null) continue;
    sum += value;
    known += 1;
  }
  return count > 0 && known === 0 ? null : sum;
}

/** `made` for each snapshot once: several parts of a page and the history need the same. */
function oncePer<Value>(made: (snapshot: ClusterSnapshot) => Value): (snapshot: ClusterSnapshot) => Value {
  const kept = new WeakMap<ClusterSnapshot, Value>();
  return (snapshot) => {
    const known = kept.get(snapshot);
    if (known !== undefined) return known;
    const value = made(snapshot);
    kept.set(snapshot, value);
    return value;
  };
}

export const totalsOf = oncePer((snapshot: ClusterSnapshot): Totals => {
  let depth = 0;
  let inFlight = 0;
  let clients = 0;
  for (const topic of snapshot.topics.values()) depth += topic.depth;
  for (const channel of snapshot.channels.values()) {
    depth += channel.depth;
    inFlight += channel.in_flight_count;
    clients += channel.client_count;
  }
  const up = [...snapshot.nodes.values()].filter((node) => node.state === 'up').length;
  return {
    publishRate: sumOfRates(snapshot.topics.values(), (topic) => topic.publish_rate),
    finishRate: sumOfRates(snapshot.channels.values(), (channel) => channel.finish_rate),
    emptiedRate: sumOfRates([...snapshot.topics.values(), ...snapshot.channels.values()], (row) => row.emptied_rate),
    rewoundRate: sumOfRates(snapshot.channels.values(), (channel) => channel.rewound_rate),
    depth,
    inFlight,
    clients,
    nodesUp: up,
    nodesDown: snapshot.nodes.size - up,
  };
});

/** The address for a publish from a shell: that of a node that is up, or the default. */
export function publishAddress(snapshot: ClusterSnapshot): string {
  const node = [...snapshot.nodes.values()].find((row) => row.state === 'up');
  return node ? `${node.broadcast_address}:${node.http_port}` : '127.0.0.1:4151';
}

export function channelsOf(snapshot: ClusterSnapshot, topic: string): ChannelRow[] {
  return [...snapshot.channels.values()].filter((channel) => channel.topic === topic);
}

/** The backlog of each topic: messages that no channel has received, and the depths of its channels. */
export const backlogOf = oncePer((snapshot: ClusterSnapshot): ReadonlyMap<string, number> => {
  const backlog = new Map<string, number>();
  for (const topic of snapshot.topics.values()) backlog.set(topic.name, topic.depth);
  for (const channel of snapshot.channels.values()) {
    backlog.set(channel.topic, (backlog.get(channel.topic) ?? 0) + channel.depth);
  }
  return backlog;
});
