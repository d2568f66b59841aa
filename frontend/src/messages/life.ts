/** What happened to one sampled message, channel by channel. */
import type { LifeEvent, PeekedMessage } from '../api/types';
import { duration, plural } from '../format/format';

/** The page of a message's life, from its publish on. A node's clock may be a little behind that of the page. */
export function lifeHref(topic: string, message: Pick<PeekedMessage, 'id' | 'timestamp'>): string {
  const from = new Date(message.timestamp - 60_000).toISOString();
  return `/life?${new URLSearchParams({ topic, message: message.id, from })}`;
}

/** An event, and the time since the one before it in the same channel; null for the first one. */
export type Step = { event: LifeEvent; gapMs: number | null };

/** The events of a channel; those of the topic itself, such as the publish, have `channel` null. */
export type ChannelLife = { channel: string | null; steps: Step[] };

/** The topic's own events first, then the channels by name. The first event of a channel follows the publish. */
export function channelsOf(events: readonly LifeEvent[]): ChannelLife[] {
  const published = events.find(({ event }) => event === 'published');
  const by = new Map<string | null, LifeEvent[]>();
  for (const event of events) by.set(event.channel, [...(by.get(event.channel) ?? []), event]);
  const names = [...by.keys()].sort((a, b) => (a ?? '').localeCompare(b ?? ''));
  return names.map((channel) => {
    let before = channel === null ? undefined : published;
    const steps = (by.get(channel) ?? []).map((event): Step => {
      const gapMs = before === undefined ? null : (event.at_us - before.at_us) / 1000;
      before = event;
      return { event, gapMs };
    });
    return { channel, steps };
  });
}

const WORDS: Record<string, string> = { timed_out: 'timed out' };
const REASONS: Record<string, string> = {
  attempts: 'too many attempts',
  expired: 'too old',
  overflow: 'too many messages',
  operator: 'by an operator',
  publisher: 'by its publisher',
  disconnected: 'its client disconnected',
  rewound: 'the channel was rewound',
  retry_delay: 'by the retry delay',
  emptied: 'emptied by an operator',
  sample_rate: 'left out by the sample rate of its client',
};

/** Such as `requeued for 50 ms` or `dead: too many attempts`. */
export function happened({ event, reason, delay_ms }: Pick<LifeEvent, 'event' | 'reason' | 'delay_ms'>): string {
  const what = WORDS[event] ?? event;
  const delayed = delay_ms === null ? what : `${what} for ${duration(delay_ms)}`;
  return reason === null ? delayed : `${delayed}: ${REASONS[reason] ?? reason}`;
}

/** The last event in a channel, and its time since the publish if that is known: `finished after 1.2 s, 2 attempts`. */
export function summary(steps: readonly Step[], published: LifeEvent | undefined): string {
  const last = steps.at(-1)?.event;
  if (last === undefined) return '';
  const attempts = plural(last.attempts, 'attempt');
  if (published === undefined) return `${WORDS[last.event] ?? last.event}, ${attempts}`;
  return `${WORDS[last.event] ?? last.event} after ${duration((last.at_us - published.at_us) / 1000)}, ${attempts}`;
}
