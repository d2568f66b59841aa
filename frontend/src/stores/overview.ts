/** What the overview ranks and what it warns of. */
import { backlogOf, type Picture } from './picture';
import type { Route } from './routes';

export type Ranked = { topic: string; value: number };

/** Beats over which growth is measured. */
export const GROWTH_BEATS = 30;

function top(entries: Iterable<[string, number | null]>, count: number): Ranked[] {
  return [...entries]
    .flatMap(([topic, value]) => (value !== null && value > 0 ? [{ topic, value }] : []))
    .sort((a, b) => b.value - a.value || a.topic.localeCompare(b.topic))
    .slice(0, count);
}

export const busiest = (picture: Picture, count: number): Ranked[] =>
  top(
    [...picture.topics.values()].map((topic): [string, number | null] => [topic.name, topic.publish_rate]),
    count,
  );

export const largestBacklog = (picture: Picture, count: number): Ranked[] => top(backlogOf(picture), count);

/** `slope` gives a topic's growth in messages per second, or null where not known. */
export function fastestGrowing(picture: Picture, slope: (topic: string) => number | null, count: number): Ranked[] {
  return top(
    [...picture.topics.keys()].map((topic): [string, number | null] => [topic, slope(topic)]),
    count,
  );
}

export function oldestMessage(picture: Picture, count: number): Ranked[] {
  return top(
    [...picture.topics.values()].map((topic): [string, number | null] => [topic.name, topic.oldest_age_ms]),
    count,
  );
}

export type Retried = { topic: string; channel: string; timeouts: number; requeues: number };

/** Channels whose messages come back: timed out or requeued, per second. */
export function mostRetried(picture: Picture, count: number): Retried[] {
  return [...picture.channels.values()]
    .map((row) => ({ topic: row.topic, channel: row.name, timeouts: row.timeout_rate ?? 0, requeues: row.requeue_rate ?? 0 }))
    .filter(({ timeouts, requeues }) => timeouts + requeues >= 0.05)
    .sort((a, b) => b.timeouts + b.requeues - a.timeouts - a.requeues)
    .slice(0, count);
}

export type Attention = {
  key: string;
  tone: 'bad' | 'warn';
  what: string;
  name: string;
  detail: string;
  route: Route;
};

const waiting = (depth: number): string => `${depth.toLocaleString('en-US')} waiting`;

/** What an operator should look at, worst first: nodes down or unwell, backlogs without clients, pauses, timeouts. */
export function attentionOf(picture: Picture): Attention[] {
  const found: Attention[] = [];
  for (const node of picture.nodes.values()) {
    const route: Route = { page: 'node', node: node.id };
    if (node.state === 'down') {
      found.push({ key: `n ${node.id}`, tone: 'bad', what: 'down', name: node.id, detail: node.error ?? '', route });
    } else if (node.health !== 'OK') {
      found.push({ key: `n ${node.id}`, tone: 'bad', what: 'unwell', name: node.id, detail: node.health, route });
    }
  }
  for (const topic of picture.topics.values()) {
    if (!topic.paused) continue;
    found.push({
      key: `t ${topic.name}`,
      tone: 'warn',
      what: 'paused',
      name: topic.name,
      detail: `${waiting(topic.depth)} in the topic`,
      route: { page: 'topic', topic: topic.name },
    });
  }
  for (const channel of picture.channels.values()) {
    const name = `${channel.topic} / ${channel.name}`;
    const route: Route = { page: 'channel', topic: channel.topic, channel: channel.name };
    const add = (what: string, tone: 'bad' | 'warn', detail: string): void => {
      found.push({ key: `c ${what} ${channel.topic}/${channel.name}`, tone, what, name, detail, route });
    };
    if (channel.paused) add('paused', 'warn', waiting(channel.depth));
    else if (channel.client_count === 0 && channel.depth > 0) add('no clients', 'warn', waiting(channel.depth));
    if ((channel.timeout_rate ?? 0) >= 0.05) add('timing out', 'warn', `${channel.timeout_rate?.toFixed(1)} a second`);
  }
  return found.sort((a, b) => Number(b.tone === 'bad') - Number(a.tone === 'bad'));
}
