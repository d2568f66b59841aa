import { expect, test } from 'vitest';
import type { ParameterSpec } from '../api/types';
import { ApiError } from '../api/client';
import { DASH, dateTime } from '../format/format';
import { describe, factsOf, formHref, parametersIn, parseTexts, requestFaults, textsOf } from './parameters';
import { percentileName } from './percentiles';
import { cronWords, formOf, requestOf, whenWords } from './schedule';

const SPECS: Record<string, ParameterSpec> = {
  window: { type: 'string', title: 'Window', default: '1h', choices: ['5m', '1h'], description: '' },
  until: { type: 'datetime', title: 'Until', default: null, description: '' },
  topic: { type: 'string', title: 'Topic', default: null, description: '' },
  minimum_count: { type: 'integer', title: 'Minimum count', default: 1000, minimum: 1, maximum: 1e6, description: '' },
};

test('a form left as it is sends the defaults and leaves empty parameters out', () => {
  expect(parseTexts(SPECS, textsOf(SPECS))).toEqual({
    values: { window: '1h', minimum_count: 1000 },
    faults: {},
  });
});

test('a time typed in the viewer’s zone is sent with its offset and comes back as typed', () => {
  const { values } = parseTexts(SPECS, { until: '2026-03-14T15:00' });
  expect(values['until']).toBe(new Date(2026, 2, 14, 15, 0).toISOString());
  expect(textsOf(SPECS, values)['until']).toBe('2026-03-14T15:00');
});

test.each([
  ['minimum_count', 'many'],
  ['minimum_count', '1.5'],
  ['minimum_count', '0'],
  ['minimum_count', '1000001'],
  ['until', 'yesterday'],
])('%s “%s” is refused beside its field', (name, text) => {
  const { faults } = parseTexts(SPECS, { ...textsOf(SPECS), [name]: text });
  expect(Object.keys(faults)).toEqual([name]);
});

test('parameters are named on one line', () => {
  expect(describe({ minimum_count: 10_000, topic: '' }, SPECS)).toBe(`${SPECS['minimum_count']?.title}: 10,000`);
  expect(describe({ minimum_count: 10, topic: '' })).toBe('Minimum count: 10');
  expect(describe({})).toBe('defaults');
});

test('parameters have the titles of the form, and times and numbers that people read', () => {
  const free: ParameterSpec = { type: 'number', title: 'Free disk space, GB', description: '', default: null };
  const until: ParameterSpec = { type: 'datetime', title: 'Until', description: '', default: null };
  const facts = factsOf({ free_gb: free, until }, { free_gb: 1250.5, until: '2026-03-14T15:00:00Z', topic: null, kept: 'x' });
  expect(facts.map(({ label, text }) => [label, text])).toEqual([
    ['Free disk space, GB', '1,250.5'],
    ['Until', dateTime(Date.UTC(2026, 2, 14, 15))],
    ['Topic', DASH],
    ['Kept', 'x'],
  ]);
  expect(factsOf({ free_gb: free }, { free_gb: 1e300 })[0]?.text).toBe('1e+300'); // of a version without a maximum
});

test('a schedule says in words when it runs', () => {
  expect(whenWords({ cron: '0 6 * * 1-5', every_seconds: null })).toBe('At 06:00, Monday through Friday');
  expect(whenWords({ cron: null, every_seconds: 3600 })).toBe('Every hour');
  expect(whenWords({ cron: null, every_seconds: 1800 })).toBe('Every 30 minutes');
  expect(whenWords({ cron: null, every_seconds: 45 })).toBe('Every 45 seconds');
});

test.each(['', '* * *', '61 * * * *', 'every day', '* * * * * *', '@fortnightly'])('the cron line “%s” is refused with a reason', (cron) => {
  const read = cronWords(cron);
  expect('fault' in read && read.fault).toMatch(/\w/);
});

test.each([
  ['5 * * * *', 'At 5 minutes past the hour'],
  ['40 2 * * *', 'At 02:40, every day'],
  ['20 * * * 1', 'At 20 minutes past the hour, every hour, only on Monday'],
  ['0 6 * * 7', 'At 06:00, only on Sunday'],
  ['@Daily', 'At 00:00, every day'],
])('a cron line is described in as few words as possible: %s', (cron, words) => {
  expect(cronWords(cron)).toEqual({ words });
});

test('a schedule that is opened and saved again is unchanged', () => {
  const saved = {
    ...{ name: 'n', job: 'latency', parameters: {}, time_zone: 'Europe/Berlin', enabled: false },
    ...{ overlap: 'cancel' as const, retries: 3, retry_after_s: 90, time_limit_s: 90, keep_days: 7 },
    ...{ notify_on: 'failure' as const, notify_webhook: 'https://hooks.example.org/x', notify_email: '' },
  };
  for (const when of [
    { cron: '5 4 * * *', every_seconds: null },
    { cron: null, every_seconds: 5400 },
    { cron: null, every_seconds: 172_800 },
  ]) {
    const asked = requestOf(formOf({ id: 1, last_run_at: null, next_run_at: null, skipped_count: 0, last_skipped_at: null, last_skip_reason: '', created_by: 'mara', ...saved, ...when }, '', 'UTC'), {});
    expect(asked).toEqual({ request: { ...saved, ...when } });
  }
});

test('a form is an address, with the parameters that were given', () => {
  const href = formHref('latency', { window: '5m', topic: 'a&b', minimum_count: 10, channel: '', until: null });
  expect(parametersIn(new URL(href, 'http://x').searchParams)).toEqual({ window: '5m', topic: 'a&b', minimum_count: '10' });
});

test.each([
  [{ retries: '11' }, 'retries'],
  [{ retries: '1.5' }, 'retries'],
  [{ retryAfterS: '0' }, 'retry_after_s'],
  [{ timeLimitMinutes: '' }, 'time_limit_s'],
  [{ keepDays: 'ever' }, 'keep_days'],
  [{ notifyOn: 'failure' as const }, 'notify_on'],
])('the policy %o is refused at its field', (change, field) => {
  expect(requestOf({ ...formOf(null, 'latency', 'UTC'), name: 'n', ...change }, {})).toMatchObject({ fault: { field } });
});

test('a schedule without a name, or every zero hours, is refused at that field', () => {
  const form = { ...formOf(null, 'latency', 'UTC'), name: 'n' };
  expect(requestOf({ ...form, name: ' ' }, {})).toMatchObject({ fault: { field: 'name' } });
  expect(requestOf({ ...form, kind: 'every', every: '0' }, {})).toMatchObject({ fault: { field: 'every_seconds' } });
  expect(requestOf({ ...form, cron: 'x' }, {})).toMatchObject({ fault: { field: 'cron' } });
});

test('percentile columns are known by their names', () => {
  expect(['p50', 'p99_ms', 'p999', 'p99_9', 'p99.9', 'max_ms', 'partition', 'p5'].map(percentileName)).toEqual([
    'p50',
    'p99',
    'p99.9',
    'p99.9',
    'p99.9',
    null,
    null,
    null,
  ]);
});

test('the platform’s error of a parameter is beside it, others are beside their fields', () => {
  const refused = new ApiError(422, 'no', [
    { field: 'parameters.window', message: "'7m' is not one of 5m, 1h" },
    { field: 'cron', message: 'no such day' },
    { field: 'parameters', message: "there is no parameter 'colour'" },
  ]);
  expect(requestFaults(refused, SPECS, ['cron'])).toEqual({
    parameters: { window: "'7m' is not one of 5m, 1h." },
    request: { cron: 'No such day.', form: "Parameters: there is no parameter 'colour'." },
  });
});
