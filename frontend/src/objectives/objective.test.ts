import { expect, test } from 'vitest';
import type { Burn, Objective } from '../api/types';
import { aimOf, isBurning, lastsMs, leftText, leftWords, limitMs, msText, objectiveFormOf, objectiveRequestOf, startsAgain, stateOf } from './objective';

const burn = (long_rate: number | null, short_rate: number | null, limit = 14.4): Burn => ({ metric: 'burn_1h', long: '1h', short: '5m', limit, long_rate, short_rate });
const OBJECTIVE: Objective = {
  ...{ id: 1, name: 'Orders in time', kind: 'latency', threshold_ms: 250, limit_ms: 250.6, target_percent: 99.9, window_days: 30 },
  ...{ topic_pattern: 'orders.*', channel_pattern: '*', created_by: 'ana', created_at: 0, counted_since: 0, counted_until: 1, window_since: 0 },
  ...{ good: 999, bad: 1, good_percent: 99.9, allowed: 1, left: 0, left_percent: 0, burns: [burn(0, 0), burn(0, 0, 6), burn(0, 0, 1)], uncounted_nodes: [] },
};

test.each([OBJECTIVE, { ...OBJECTIVE, kind: 'success' as const, threshold_ms: null }])('an objective that is opened and saved again is unchanged: $kind', (objective) => {
  const asked = objectiveRequestOf(objectiveFormOf(objective));
  if ('faults' in asked) throw new Error('refused');
  expect(objective).toMatchObject(asked.request);
  expect(startsAgain(objective, asked.request)).toBe(false);
  expect(startsAgain(objective, { ...asked.request, target_percent: 99 })).toBe(false);
  expect(startsAgain(objective, { ...asked.request, channel_pattern: 'billing' })).toBe(true);
});

test.each([
  [{ name: ' ' }, 'name'],
  [{ threshold: 'soon' }, 'threshold_ms'],
  [{ threshold: '0' }, 'threshold_ms'],
  [{ target: '100' }, 'target_percent'],
  [{ target: '99.9999999999999' }, 'target_percent'],
  [{ days: '1.5' }, 'window_days'],
  [{ days: '91' }, 'window_days'],
])('a wrong value is named by its field: %o', (values, field) => {
  const asked = objectiveRequestOf({ ...objectiveFormOf(OBJECTIVE), ...values });
  expect(Object.keys('faults' in asked ? asked.faults : {})).toEqual([field]);
});

test.each([
  [1000, 1006.186086],
  [0.0005, 0.001],
  [1.048576, 1.048576],
  [100, 101.27831],
])('a threshold of %s ms is counted up to the bound %s ms', (threshold, bound) => {
  expect(limitMs(threshold)).toBeCloseTo(bound, 6);
});

test('an objective is described in words', () => {
  expect(aimOf(OBJECTIVE)).toBe('99.9 % of messages within 250 ms over 30 days');
  expect(aimOf({ ...OBJECTIVE, kind: 'success', window_days: 1 })).toBe('99.9 % of deliveries succeed over 1 day');
  expect(msText(1001.7)).toBe('1.002 s');
  expect(leftText(-120)).toBe('−120 %');
  expect(leftWords({ allowed: 120.7, left: 12.9 })).toBe('12 of 120 bad messages left');
  expect(leftWords({ allowed: 1, left: 0 })).toBe('0 of 1 bad message left');
  expect(leftWords({ allowed: 1, left: -1 })).toBe('1 more bad message than the 1 allowed');
  expect(leftWords({ allowed: 10, left: -5 })).toBe('5 more bad messages than the 10 allowed');
});

test.each([
  [{}, 'met'],
  [{ counted_since: null }, 'not counted yet'],
  [{ left_percent: null }, 'no messages'],
  [{ left_percent: -1 }, 'budget spent'],
  [{ burns: [burn(15, 15)] }, 'burning'],
  [{ burns: [burn(15, 14)] }, 'met'],
])('the state of %o is %s', (values, text) => {
  expect(stateOf({ ...OBJECTIVE, ...values }).text).toBe(text);
});

test('a pair burns while both of its rates are above its limit', () => {
  expect([isBurning(burn(14.5, 14.5)), isBurning(burn(14.4, 99)), isBurning(burn(99, null))]).toEqual([true, false, false]);
});

test('a budget lasts as long as its rest at the burn rate', () => {
  expect(lastsMs({ left: 5, allowed: 10, window_days: 30 }, 15)).toBe(86_400_000);
  expect(lastsMs({ left: 5, allowed: 10, window_days: 30 }, 0.1)).toBeNull();
  expect(lastsMs({ left: -5, allowed: 10, window_days: 30 }, 15)).toBeNull();
});
