import { expect, test } from 'vitest';
import type { ParameterSpec, Result } from '../api/types';
import { describe, parseTexts, textsOf } from './parameters';
import { percentileChart, percentileName } from './percentiles';
import { cronWords, formOf, requestOf, whenWords } from './schedule';

const SPECS: Record<string, ParameterSpec> = {
  window: { type: 'string', title: 'Window', default: '1h', choices: ['5m', '1h'], description: '' },
  until: { type: 'datetime', title: 'Until', default: null, description: '' },
  topic: { type: 'string', title: 'Topic', default: null, description: '' },
  minimum_count: { type: 'integer', title: 'Minimum count', default: 1000, minimum: 1, description: '' },
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
  ['until', 'yesterday'],
])('%s “%s” is refused beside its field', (name, text) => {
  const { faults } = parseTexts(SPECS, { ...textsOf(SPECS), [name]: text });
  expect(Object.keys(faults)).toEqual([name]);
});

test('parameters are named on one line', () => {
  expect(describe({ minimum_count: 10, topic: '' })).toBe('minimum count 10');
  expect(describe({})).toBe('defaults');
});

test('a schedule says in words when it runs', () => {
  expect(whenWords({ cron: '0 6 * * 1-5', every_seconds: null })).toBe('At 06:00, Monday through Friday');
  expect(whenWords({ cron: null, every_seconds: 3600 })).toBe('Every hour');
  expect(whenWords({ cron: null, every_seconds: 1800 })).toBe('Every 30 minutes');
  expect(whenWords({ cron: null, every_seconds: 45 })).toBe('Every 45 seconds');
});

test.each(['', '* * *', '61 * * * *', 'every day', '* * * * * *'])('the cron line “%s” is refused with a reason', (cron) => {
  const read = cronWords(cron);
  expect('fault' in read && read.fault).toMatch(/\w/);
});

test('a schedule that is opened and saved again is unchanged', () => {
  const saved = { name: 'n', job: 'latency', parameters: {}, time_zone: 'Europe/Berlin', enabled: false };
  for (const when of [
    { cron: '5 4 * * *', every_seconds: null },
    { cron: null, every_seconds: 5400 },
    { cron: null, every_seconds: 172_800 },
  ]) {
    const asked = requestOf(formOf({ id: 1, last_run_at: null, created_by: 'mara', ...saved, ...when }, '', 'UTC'), {});
    expect(asked).toEqual({ request: { ...saved, ...when } });
  }
});

test('a schedule without a name, or every zero hours, is refused at that field', () => {
  const form = { ...formOf(null, 'latency', 'UTC'), name: 'n' };
  expect(requestOf({ ...form, name: ' ' }, {})).toMatchObject({ fault: { field: 'name' } });
  expect(requestOf({ ...form, kind: 'every', every: '0' }, {})).toMatchObject({ fault: { field: 'every' } });
  expect(requestOf({ ...form, cron: 'x' }, {})).toMatchObject({ fault: { field: 'cron' } });
});

const RESULT: Result = {
  columns: [
    { name: 'window_start', type: 'timestamp', unit: '' },
    { name: 'topic', type: 'string', unit: '' },
    { name: 'count', type: 'integer', unit: 'messages' },
    { name: 'p50_ms', type: 'number', unit: 'ms' },
    { name: 'p999_ms', type: 'number', unit: 'ms' },
    { name: 'max_ms', type: 'number', unit: 'ms' },
  ],
  rows: [
    [7_200_000, 'orders', 10, 2, null, 9],
    [3_600_000, 'orders', 10, 1, 8, 9],
    [3_600_000, 'emails', 10, 5, 6, 7],
  ],
  total: 3,
};

test('a result becomes one chart line per percentile, a series per topic, in the order of time', () => {
  expect(percentileChart(RESULT)).toEqual({
    percentiles: ['p50', 'p99.9'],
    series: [
      { group: 'emails', times: [3600], values: [[5], [6]] },
      {
        group: 'orders',
        times: [3600, 7200],
        values: [
          [1, 2],
          [8, null],
        ],
      },
    ],
  });
});

test('a result in nanoseconds is drawn in milliseconds', () => {
  const columns = RESULT.columns.map((column) => (column.name === 'p50_ms' ? { ...column, name: 'p50', unit: 'ns' } : column));
  expect(percentileChart({ ...RESULT, columns, rows: [[0, 'a', 1, 2_000_000, null, 0]] })?.series[0]?.values[0]).toEqual([2]);
});

test('a result without percentiles over time has no chart', () => {
  expect(percentileChart({ ...RESULT, columns: RESULT.columns.slice(0, 3) })).toBeNull();
  expect(percentileChart({ ...RESULT, columns: RESULT.columns.slice(1) })).toBeNull();
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
