import { expect, test } from 'vitest';
import type { AlertMetric, AlertRuleRequest } from '../api/types';
import { amountOf, comparisonOf, parseNumber, ruleFormOf, ruleRequestOf, TIMES, unitsOf } from './rule';

const metric = (scope: AlertMetric['scope'], name: string, unit: string, is_flag = false): AlertMetric => ({ scope, name, title: name, unit, is_flag, is_anomaly: name.startsWith('unusual_'), description: '' });
const METRICS = [metric('channel', 'depth', 'messages'), metric('channel', 'oldest_age_s', 's'), metric('topic', 'byte_rate', 'bytes/s'), metric('node', 'down', '', true), metric('channel', 'unusual_depth', 'messages'), metric('archive', 'damaged_file_count', 'damaged files'), metric('objective', 'burn_1h', '×')];
const RULE: AlertRuleRequest = {
  ...{ name: 'Backlog', description: 'add consumers', enabled: false, severity: 'critical', scope: 'channel', metric: 'depth' },
  ...{ comparison: 'above', threshold: 100_000, topic_pattern: 'orders.*', channel_pattern: '*', node_pattern: '*', objective_pattern: '*' },
  ...{ hold_s: 300, resolve_after_s: 45, repeat_s: 3600, notifiers: ['ops'] },
};

test.each([
  RULE,
  { ...RULE, metric: 'oldest_age_s', threshold: 90, repeat_s: null },
  { ...RULE, scope: 'topic' as const, metric: 'byte_rate', threshold: 3 * 1024 ** 2, channel_pattern: '*' },
  { ...RULE, scope: 'node' as const, metric: 'down', threshold: 0, topic_pattern: '*', node_pattern: 'rack-*', hold_s: 0 },
  { ...RULE, metric: 'unusual_depth', comparison: 'outside' as const, threshold: 1.96 },
  { ...RULE, scope: 'objective' as const, metric: 'burn_1h', threshold: 14.4, topic_pattern: '*', objective_pattern: 'Orders*' },
  { ...RULE, scope: 'archive' as const, metric: 'damaged_file_count', threshold: 0, topic_pattern: '*' },
])('a rule that is opened and saved again is unchanged: $metric', (rule) => {
  expect(ruleRequestOf(ruleFormOf(rule, METRICS), METRICS)).toEqual({ request: rule });
});

test('a metric that is compared with past weeks has a band to be outside of, and no other has', () => {
  const [depth, , , , unusual] = METRICS;
  expect(comparisonOf(unusual, 'above')).toBe('outside');
  expect(comparisonOf(depth, 'outside')).toBe('above');
  expect(comparisonOf(depth, 'below')).toBe('below');
});

test('a rule of the archive has no patterns', () => {
  const form = { ...ruleFormOf(RULE, METRICS), scope: 'archive' as const, metric: 'damaged_file_count', channel: 'billing', node: 'rack-*' };
  expect(ruleRequestOf(form, METRICS)).toMatchObject({ request: { topic_pattern: '*', channel_pattern: '*', node_pattern: '*' } });
});

test('times and bytes are shown in the largest unit that fits them', () => {
  expect(amountOf(300, TIMES)).toEqual({ text: '5', unit: 'minutes' });
  expect(amountOf(90, TIMES)).toEqual({ text: '90', unit: 'seconds' });
  expect(amountOf(0, TIMES)).toEqual({ text: '0', unit: 'seconds' });
  expect(amountOf(1536 * 1024, unitsOf('bytes/s'))).toEqual({ text: '1536', unit: 'KiB/s' });
});

test.each([
  ['10000', 10_000],
  ['10,000', 10_000],
  [' 10k ', 10_000],
  ['1.5M', 1_500_000],
  ['0.2', 0.2],
  ['1,5', null],
  ['-1', null],
  ['many', null],
  ['', null],
])('the number “%s” is read as %s', (text, value) => {
  expect(parseNumber(text)).toBe(value);
});

test.each([
  [{ name: ' ' }, 'name'],
  [{ threshold: { text: 'many', unit: 'messages' } }, 'threshold'],
  [{ hold: { text: '', unit: 'seconds' } }, 'hold_s'],
  [{ hold: { text: '0.5', unit: 'seconds' } }, 'hold_s'],
  [{ hold: { text: '8', unit: 'days' } }, 'hold_s'],
  [{ repeats: true, repeat: { text: '30', unit: 'seconds' } }, 'repeat_s'],
])('the rule with %o is refused at its field', (change, field) => {
  const asked = ruleRequestOf({ ...ruleFormOf(RULE, METRICS), ...change }, METRICS);
  expect('faults' in asked && Object.keys(asked.faults)).toEqual([field]);
});
