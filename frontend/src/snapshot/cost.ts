/** What an action on topics or channels costs, counted in the live snapshot, as sentences for its confirmation. */
import type { ActionName, BulkTarget, ChannelRow, NodeRow } from '../api/types';
import { count, plural, timeText } from '../format/format';
import { downNodes, unansweredText } from './down';
import { channelKey, channelsOf, isCurrent, type ClusterSnapshot } from './snapshot';

/** An action that a user confirms. A tombstone is for one topic on one node. */
export type Costly = { action: ActionName; targets: readonly BulkTarget[] } | { action: 'tombstone'; topic: string; node: string };

export type Cost = {
  /** The consequences, in numbers of the nodes that answer. */
  sentences: readonly string[];
  /** One sentence for each node that does not answer. */
  silent: readonly string[];
  /** `Figures as of 17:04:09.` */
  asOf: string;
  /** The nodes that answer and have one of the targets. */
  nodes: readonly string[];
  /** Messages that are deleted; 0 for an action that deletes none. */
  lost: number;
};

/** Whether the action deletes messages and therefore requires the name. */
export function destroys(action: Costly['action']): boolean {
  return action === 'empty' || action === 'delete' || action === 'tombstone';
}

/** The text that the user must type before a deletion: the name of a single target, otherwise the number of targets. */
export function wordOf(targets: readonly BulkTarget[]): string {
  const only = targets.length === 1 ? targets[0] : undefined;
  return only ? (only.channel ?? only.topic) : String(targets.length);
}

/** Figures of the targets on one node. `unrouted`: messages that no channel has received. */
type Figures = { unrouted: number; waiting: number; inFlight: number; deferred: number; dead: number; clients: number };
const NONE: Figures = { unrouted: 0, waiting: 0, inFlight: 0, deferred: 0, dead: 0, clients: 0 };

const sum = (all: readonly Figures[]): Figures =>
  all.reduce(
    (total, each) => ({
      unrouted: total.unrouted + each.unrouted,
      waiting: total.waiting + each.waiting,
      inFlight: total.inFlight + each.inFlight,
      deferred: total.deferred + each.deferred,
      dead: total.dead + each.dead,
      clients: total.clients + each.clients,
    }),
    NONE,
  );

/** Messages that emptying a channel deletes. */
const unfinished = ({ waiting, inFlight, deferred }: Figures): number => waiting + inFlight + deferred;
/** Messages that are lost with a channel. */
const inChannels = (figures: Figures): number => unfinished(figures) + figures.dead;

const minus = (all: Figures, part: Figures): Figures => ({
  unrouted: all.unrouted - part.unrouted,
  waiting: all.waiting - part.waiting,
  inFlight: all.inFlight - part.inFlight,
  deferred: all.deferred - part.deferred,
  dead: all.dead - part.dead,
  clients: all.clients - part.clients,
});

type ChannelFigures = Pick<ChannelRow, 'depth' | 'in_flight_count' | 'deferred_count' | 'dead_count' | 'client_count'>;
const ofChannel = (row: ChannelFigures): Figures => ({
  unrouted: 0,
  waiting: row.depth,
  inFlight: row.in_flight_count,
  deferred: row.deferred_count,
  dead: row.dead_count,
  clients: row.client_count,
});

/**
 * The targets' figures on all nodes, those of each node, and the number of their channels.
 *
 * `total` is that of the rows: while the page subscribes to everything, changes of the shares of single nodes are not
 * sent. The share of a node that is down does not change.
 */
function counted(snapshot: ClusterSnapshot, targets: readonly BulkTarget[]): { total: Figures; byNode: Map<string, Figures>; channels: number } {
  const totals: Figures[] = [];
  const byNode = new Map<string, Figures>();
  const add = (node: string, figures: Figures): void => void byNode.set(node, sum([byNode.get(node) ?? NONE, figures]));
  let channels = 0;
  for (const { topic, channel } of targets) {
    const own = channel === undefined ? snapshot.topics.get(topic) : undefined;
    if (own) totals.push({ ...NONE, unrouted: own.depth });
    for (const share of own?.nodes ?? []) add(share.node, { ...NONE, unrouted: share.depth });
    const one = channel === undefined ? undefined : snapshot.channels.get(channelKey({ topic, name: channel }));
    const affected = channel === undefined ? channelsOf(snapshot, topic) : one ? [one] : [];
    channels += affected.length;
    for (const row of affected) {
      totals.push(ofChannel(row));
      for (const share of row.nodes) add(share.node, ofChannel(share));
    }
  }
  return { total: sum(totals), byNode, channels };
}

/** `a`, `a and b`, `a, b and c`. */
function listed(parts: readonly string[]): string {
  return parts.length < 2 ? (parts[0] ?? '') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`;
}

const be = (n: number): string => (n === 1 ? 'is' : 'are');

/** `100 waiting, 3 in flight, 2 deferred and 1 dead`, without the zeros. */
function states({ waiting, inFlight, deferred, dead }: Figures): string {
  return listed([
    ...(waiting > 0 ? [`${count(waiting)} waiting`] : []),
    ...(inFlight > 0 ? [`${count(inFlight)} in flight`] : []),
    ...(deferred > 0 ? [`${count(deferred)} deferred`] : []),
    ...(dead > 0 ? [`${count(dead)} dead`] : []),
  ]);
}

/** What the sentences are about: topics or channels, their number and their channels, on the nodes that answer. `where` names these, or says that there are none. */
type Subject = { kind: 'topic' | 'channel'; number: number; channels: number; figures: Figures; where: string; isOnNone: boolean };

const itself = ({ kind, number }: Subject): string => (number === 1 ? `The ${kind}` : `The ${plural(number, kind)}`);
const its = ({ number }: Subject): string => (number === 1 ? 'its' : 'their');
const itsChannels = (subject: Subject): string => `${its(subject)} ${plural(subject.channels, 'channel')}`;

/** How many of the figures an action deletes. */
function lostOf(action: Costly['action'], kind: Subject['kind'], figures: Figures): number {
  if (!destroys(action)) return 0;
  if (kind === 'channel') return action === 'empty' ? unfinished(figures) : inChannels(figures);
  return figures.unrouted + (action === 'empty' ? 0 : inChannels(figures));
}

/** `157 messages on 2 nodes are deleted: 7 in no channel, and in 2 channels 150 waiting, 3 in flight and 2 deferred.` */
function deleted(subject: Subject, lost: number, detail: string): string {
  if (subject.isOnNone) return `How many messages are deleted is unknown: ${subject.where}.`;
  if (lost === 0) return `No messages are deleted: there are none on ${subject.where}.`;
  return `${plural(lost, 'message')} on ${subject.where} ${be(lost)} deleted${detail}.`;
}

function removed(subject: Subject): string {
  const { kind, channels, figures, number } = subject;
  const what = kind === 'topic' && channels > 0 ? `${itself(subject)} and ${itsChannels(subject)} are` : `${itself(subject)} ${be(number)}`;
  const clients = figures.clients > 0 ? `, and ${plural(figures.clients, 'client')} ${be(figures.clients)} disconnected` : '';
  return `${what} removed${clients}.`;
}

function ofTopicAndChannels({ channels, figures }: Subject): string {
  const within = inChannels(figures);
  const parts = [
    ...(figures.unrouted > 0 ? [`${count(figures.unrouted)} in no channel`] : []),
    ...(within > 0 ? [`in ${plural(channels, 'channel')} ${states(figures)}`] : []),
  ];
  return `: ${parts.join(', and ')}`;
}

const ONCE_EACH = 'A message that several channels have not finished counts once for each.';
const FOR_GOOD = 'This cannot be undone.';

function consequences(action: ActionName, subject: Subject, lost: number): string[] {
  const { figures, kind, channels, where, isOnNone } = subject;
  const clients = plural(figures.clients, 'client');
  if (isOnNone && !destroys(action)) return [`How many messages and clients this concerns is unknown: ${where}.`];
  switch (`${action} ${kind}`) {
    case 'delete topic':
      return [
        deleted(subject, lost, ofTopicAndChannels(subject)),
        removed(subject),
        ...(channels > 1 && inChannels(figures) > 0 ? [ONCE_EACH] : []),
        FOR_GOOD,
      ];
    case 'delete channel':
      return [deleted(subject, lost, `: ${states(figures)}`), removed(subject), FOR_GOOD];
    case 'empty topic':
      return [
        deleted(subject, lost, ': those that no channel has received'),
        ...(channels > 0 && !isOnNone ? [`The ${plural(inChannels(figures), 'message')} in ${itsChannels(subject)} ${inChannels(figures) === 1 ? 'stays' : 'stay'}.`] : []),
        FOR_GOOD,
      ];
    case 'empty channel':
      return [
        deleted(subject, lost, `: ${states({ ...figures, dead: 0 })}`),
        ...(figures.dead > 0 ? [`${plural(figures.dead, 'dead message')} ${figures.dead === 1 ? 'stays' : 'stay'}.`] : []),
        ...(figures.clients > 0 ? [`${clients} ${figures.clients === 1 ? 'stays' : 'stay'} connected.`] : []),
        'A rewind brings back only messages that a node still stores.',
      ];
    case 'pause topic':
      return [
        `New messages stay in ${subject.number === 1 ? 'the topic' : 'the topics'} on ${where}, which ${subject.number === 1 ? 'has' : 'have'} ${plural(figures.unrouted, 'message')} now, and no longer reach ${itsChannels(subject)} until unpaused.`,
      ];
    case 'unpause topic':
      return [`${plural(figures.unrouted, 'message')} on ${where} ${figures.unrouted === 1 ? 'continues' : 'continue'} to ${itsChannels(subject)}.`];
    case 'pause channel': {
      const held = figures.waiting + figures.deferred;
      return [
        `${plural(held, 'message')} on ${where} ${held === 1 ? 'stays' : 'stay'} until unpaused${held > 0 ? `: ${states({ ...figures, inFlight: 0, dead: 0 })}` : ''}.`,
        `${figures.clients === 0 ? 'No client is subscribed' : `${clients} ${figures.clients === 1 ? 'gets' : 'get'} no further messages`}.`,
        ...(figures.inFlight > 0 ? [`${count(figures.inFlight)} in flight can still be finished.`] : []),
      ];
    }
    case 'unpause channel':
      return [`${plural(figures.waiting, 'waiting message')} on ${where} can be delivered again, to ${figures.clients === 0 ? 'no client now' : clients}.`];
    default:
      return [];
  }
}

/** `b:1 has not answered since 17:04:09: unknown, 50 messages at its last answer.` */
function silentSentence(node: NodeRow, messages: number | null, now: number): string {
  const last = node.down_since === null || messages === null ? '' : `, ${plural(messages, 'message')} at its last answer`;
  return `${node.id} ${unansweredText(node, now)}: unknown${last}.`;
}

/** `Figures as of 17:04:09.` */
export function asOf(at: number, now: number): string {
  return `Figures as of ${timeText(at, now)}.`;
}

const nodesText = (nodes: readonly string[]): string => (nodes.length === 1 ? `node ${nodes[0]}` : plural(nodes.length, 'node'));

/** The cost of an action. Null if the rows of a topic are older than the snapshot. `now`: Unix milliseconds. */
export function costOf(snapshot: ClusterSnapshot, costly: Costly, now: number): Cost | null {
  const isTombstone = costly.action === 'tombstone';
  const targets = isTombstone ? [{ topic: costly.topic }] : costly.targets;
  if (!targets.every(({ topic }) => isCurrent(snapshot, topic))) return null;
  const { total, byNode, channels } = counted(snapshot, targets);
  const down = downNodes(snapshot).filter((node) =>
    isTombstone ? node.id === costly.node : node.down_since === null || byNode.has(node.id),
  );
  const silentIds = new Set(down.map((node) => node.id));
  const having = [...byNode.keys()].filter((node) => !silentIds.has(node)).sort();
  const nodes = isTombstone ? having.filter((node) => node === costly.node) : having;
  const partOf = (ids: Iterable<string>): Figures => sum([...ids].map((id) => byNode.get(id) ?? NONE));
  const answering = minus(total, partOf(downNodes(snapshot).map((node) => node.id)));
  const figures = isTombstone ? partOf(nodes) : answering;
  const kind = targets[0]?.channel === undefined ? 'topic' : 'channel';
  const isOnNone = nodes.length === 0;
  const where = !isOnNone ? nodesText(nodes) : down.length === 1 ? `${down[0]?.id} does not answer` : 'none of the nodes answers';
  const subject: Subject = { kind, number: targets.length, channels, figures, where, isOnNone };
  const lost = lostOf(costly.action, kind, figures);
  const own = (node: NodeRow): number | null => {
    const share = byNode.get(node.id);
    return share ? (destroys(costly.action) ? lostOf(costly.action, kind, share) : share.unrouted + unfinished(share)) : null;
  };
  const silent = down.map((node) => silentSentence(node, own(node), now));
  const all = nodes.length + down.length;
  return {
    sentences: isTombstone
      ? tombstoned(snapshot, costly, subject, lost, minus(answering, figures))
      : isOnNone && down.length === 0
        ? [`No node has ${targets.length === 1 ? `the ${kind}` : `the ${plural(targets.length, kind)}`}.`, ...(costly.action === 'delete' ? [`The registries forget ${targets.length === 1 ? 'it' : 'them'}.`] : [])]
        : consequences(costly.action, subject, lost),
    silent: silent.length > 0 ? [`${count(nodes.length)} of ${plural(all, 'node')} ${nodes.length === 1 ? 'answers' : 'answer'}, and only these are counted.`, ...silent] : [],
    asOf: asOf(snapshot.takenAt, now),
    nodes,
    lost,
  };
}

/** A tombstone hides the node from lookups, and the platform also deletes the topic there, as nsqadmin does. */
function tombstoned(snapshot: ClusterSnapshot, { topic, node }: { topic: string; node: string }, subject: Subject, lost: number, elsewhere: Figures): string[] {
  const others = (snapshot.topics.get(topic)?.nodes ?? []).filter((share) => share.node !== node && snapshot.nodes.get(share.node)?.state !== 'down');
  const kept = elsewhere.unrouted + inChannels(elsewhere);
  const here = channelsOf(snapshot, topic).filter((row) => row.nodes.some((share) => share.node === node)).length;
  const onNode = { ...subject, channels: here };
  return [
    deleted(onNode, lost, ofTopicAndChannels(onNode)),
    `${node} removes the topic${here > 0 ? ` and its ${plural(here, 'channel')}` : ''}${subject.figures.clients > 0 ? ` and disconnects ${plural(subject.figures.clients, 'client')}` : ''}.`,
    `Registries hide ${node} from lookups of ${topic} for their tombstone lifetime, 45 s by default. A later message published to ${node} brings the topic back.`,
    ...(others.length > 0 ? [`${plural(kept, 'message')} on ${plural(others.length, 'other node')} ${kept === 1 ? 'stays' : 'stay'}.`] : []),
    ...(here > 1 && inChannels(subject.figures) > 0 ? [ONCE_EACH] : []),
    FOR_GOOD,
  ];
}
