import { expect, test } from 'vitest';
import type { AlertRule, RulePreview } from '../../../api/types';
import { besideValue, firesWhen, pastWeeksOf, previewOf, reachOf } from './words';

const seen = (value: number | null, beyond: boolean | null): RulePreview => ({
  ...{ taken_at: 0, matched: 1, beyond: beyond ? 1 : 0, unknown: beyond === null ? 1 : 0 },
  rows: [{ topic: '', channel: '', node: '', objective: '', value, beyond, detail: '' }],
});

test.each([
  [seen(3, true), 'Would fire now: 3 damaged files', true],
  [seen(1, true), 'Would fire now: 1 damaged file', true],
  [seen(0, false), 'Would not fire now: 0 damaged files', false],
  [seen(null, null), 'The number of damaged files is not known', false],
])('a preview says what a rule of the archive would do now: %#', (preview, text, lasting) => {
  expect(previewOf(preview, 'archive', 'damaged files')).toEqual({ text, lasting });
});

test('a rule of channels counts those it would fire for', () => {
  const preview = { taken_at: 0, matched: 5, beyond: 2, unknown: 1, rows: [] };
  expect(previewOf(preview, 'channel', 'messages')).toEqual({ text: 'Would fire now for 2 of 5 channels; unknown for 1', lasting: true });
});

test.each([
  ['depth', 100_000, 'messages', 'above 100,000'],
  ['dead', 1, 'messages', 'above 1'],
  ['oldest_age_s', 300, 's', 'above 5 min'],
  ['requeue_rate', 2, 'messages/s', 'above 2 messages/s'],
  ['byte_rate', 2048, 'bytes/s', 'above 2.0 KiB/s'],
  ['down', 0, '', 'for 30 s'],
])('beside a value of %s, the threshold %s in %s is %s', (metric, threshold, unit, text) => {
  expect(besideValue({ metric, comparison: 'above', threshold, hold_s: 30 }, unit)).toBe(text);
});

test('a rule that compares a figure with past weeks names its band', () => {
  const rule = { scope: 'channel', metric: 'unusual_depth', comparison: 'outside', threshold: 1.96, hold_s: 600 } as const;
  expect(firesWhen([], rule, 'messages')).toBe('unusual depth outside the 95 % band for 10 min');
  expect(firesWhen([], { ...rule, comparison: 'below', threshold: 6 }, 'messages')).toBe('unusual depth below the band of score 6 for 10 min');
});

test.each([
  [{ matched: 5, short: 2, found_at: 1 }, '2 of 5 channels have fewer than 3 past weeks to compare with'],
  [{ matched: 1, short: 1, found_at: 1 }, '1 of 1 channel has fewer than 3 past weeks to compare with'],
  [{ matched: 5, short: 0, found_at: 1 }, ''],
  [{ matched: 5, short: 0, found_at: null }, 'Past weeks are being read'],
])('a rule says how many subjects have too little history: %o', (known, text) => {
  expect(pastWeeksOf({ scope: 'channel', enabled: true, past_weeks: { least_weeks: 3, error: '', ...known } })).toBe(text);
});

test('a rule of the archive has one subject, whatever its patterns', () => {
  const rule = { scope: 'archive', topic_pattern: '*', channel_pattern: '*', node_pattern: '*' } as AlertRule;
  expect(reachOf(rule)).toBe('the archive');
});
