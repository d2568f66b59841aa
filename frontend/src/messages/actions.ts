/** Actions on messages: their names, and what they cost. */
import type { MatchingMessages, MessageAction, PeekedMessage } from '../api/types';
import { bytes, count, plural } from '../format/format';
import { asOf, type Cost } from '../snapshot/cost';

export const LABELS: Record<MessageAction, string> = { requeue: 'Requeue now', finish: 'Finish', copy: 'Copy to topic', move: 'Move to topic' };
export const ACTIONS = ['requeue', 'finish', 'copy', 'move'] as const satisfies readonly MessageAction[];
const PAST: Record<MessageAction, string> = { requeue: 'requeued', finish: 'finished', copy: 'copied', move: 'moved' };

export const publishes = (action: MessageAction): boolean => action === 'copy' || action === 'move';

/** Why this message cannot be copied or moved; empty if it can. */
export function refusalOf(action: MessageAction, { visibility }: Pick<PeekedMessage, 'visibility'>): string {
  return publishes(action) && visibility !== 'whole' ? 'A mask hides values in this body from you' : '';
}

/** `Message 00400… was moved to returns.`, or that the message is no longer in the channel. */
export function doneText(action: MessageAction, id: string, count: number, target: string): string {
  if (count === 0) return `Message ${id} is no longer in the channel.`;
  return `Message ${id} was ${PAST[action]}${target ? ` to ${target}` : ''}.`;
}

function effectOf(action: MessageAction, number: number, channel: string, target: string): string[] {
  const [are, them, their] = number === 1 ? ['is', 'it', 'its'] : ['are', 'them', 'their'];
  const to = target === '' ? 'the topic' : `topic ${target}`;
  if (action === 'requeue') return [`${are} ready for delivery at once.`, 'Those in flight are taken back from their clients and delivered again.'];
  if (action === 'finish') return [`${are} removed from channel ${channel}, and no consumer processes ${them} any more.`, 'Other channels keep their copies.'];
  if (action === 'copy') return [`${are} published to ${to} on ${their} node.`, `Channel ${channel} does not change.`];
  return [`${are} published to ${to} on ${their} node, then removed from channel ${channel}.`, `After a failure in between, ${number === 1 ? 'it' : 'some'} may be in both.`];
}

/** The cost of an action on one message. */
export function costOfOne(action: MessageAction, message: PeekedMessage, channel: string, target: string): Cost {
  const [first, ...others] = effectOf(action, 1, channel, target);
  const holder = message.client === null ? '' : message.client.client_id || message.client.hostname;
  return {
    sentences: [
      `1 message of ${bytes(message.size)} on ${message.node} ${first}`,
      ...others,
      ...(holder && action !== 'copy' ? [`It is in flight with ${holder}, whose FIN will fail.`] : []),
    ],
    silent: [],
    asOf: '',
    nodes: [],
    lost: action === 'finish' ? 1 : 0,
  };
}

/** The cost of an action on all messages that match, as the nodes counted them. `now`: Unix milliseconds. */
export function costOfAll(action: MessageAction, found: MatchingMessages, channel: string, target: string, now: number): Cost {
  const [first, ...others] = effectOf(action, found.matching, channel, target);
  const silent = found.nodes.filter((node) => node.error !== '');
  return {
    sentences: [
      `${count(found.matching)} of ${plural(found.total, 'message')} ${found.matching === 1 ? 'matches' : 'match'} and ${first}`,
      ...others,
      'Messages published later are not included.',
      ...(found.withheld > 0 ? [`${plural(found.withheld, 'body', 'bodies')} could not be searched, because a mask withholds ${found.withheld === 1 ? 'it' : 'them'}.`] : []),
    ],
    silent: silent.map((node) => `${node.node} is left out: ${node.error}.`),
    asOf: `Counted by the nodes. ${asOf(found.as_of, now)}`,
    nodes: found.nodes.filter((node) => node.error === '').map((node) => node.node),
    lost: action === 'finish' ? found.matching : 0,
  };
}
