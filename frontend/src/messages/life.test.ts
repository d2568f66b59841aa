import { describe, expect, it } from 'vitest';
import type { LifeEvent } from '../api/types';
import { channelsOf, happened, lifeHref, summary } from './life';

const event = (channel: string | null, what: string, at_us: number, more: Partial<LifeEvent> = {}): LifeEvent => ({
  at_us,
  node: 'a:4151',
  channel,
  event: what,
  attempts: 1,
  reason: null,
  delay_ms: null,
  client_id: null,
  client_address: null,
  ...more,
});

describe('the life of a message', () => {
  it('has a part for the topic and each channel, whose first event follows the publish', () => {
    const events = [
      event(null, 'published', 1_000_000, { attempts: 0 }),
      event('b', 'delivered', 1_000_500),
      event('a', 'delivered', 1_002_000),
      event('b', 'finished', 1_010_500),
    ];
    const found = channelsOf(events);
    expect(found.map(({ channel }) => channel)).toEqual([null, 'a', 'b']);
    expect(found.map(({ steps }) => steps.map(({ gapMs }) => gapMs))).toEqual([[null], [2], [0.5, 10]]);
    expect(summary(found[2]?.steps ?? [], events[0])).toBe('finished after 11 ms, 1 attempt');
  });

  it('has no first gap if the publish is not known', () => {
    const [only] = channelsOf([event('a', 'timed_out', 5, { attempts: 2 })]);
    expect(only?.steps[0]?.gapMs).toBeNull();
    expect(summary(only?.steps ?? [], undefined)).toBe('timed out, 2 attempts');
  });

  it('says what happened, for how long, and why', () => {
    expect(happened({ event: 'timed_out', reason: null, delay_ms: null })).toBe('timed out');
    expect(happened({ event: 'requeued', reason: null, delay_ms: 50 })).toBe('requeued for 50 ms');
    expect(happened({ event: 'dead', reason: 'attempts', delay_ms: null })).toBe('dead: too many attempts');
    expect(happened({ event: 'dropped', reason: 'unheard of', delay_ms: null })).toBe('dropped: unheard of');
  });

  it('is linked with the names in the address, from a minute before the publish', () => {
    expect(lifeHref('a#b', { id: '0040', timestamp: 120_000 })).toBe('/life?topic=a%23b&message=0040&from=1970-01-01T00%3A01%3A00.000Z');
  });
});
