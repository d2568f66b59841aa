import { expect, test } from 'vitest';
import { EVERYTHING, filtersOf } from './filters';

test('days are in the viewer\'s zone, and both are included', () => {
  const { since, until } = filtersOf({ ...EVERYTHING, from: '2026-03-01', to: '2026-03-02' });
  expect(new Date(since ?? 0).toString()).toContain('Mar 01 2026 00:00:00');
  expect(new Date(until ?? 0).toString()).toContain('Mar 03 2026 00:00:00');
});

test('an incomplete day filters nothing', () => {
  expect(filtersOf({ ...EVERYTHING, from: '2026-03', user: 'mara' })).toEqual({ user: 'mara', action: '', object: '' });
});

test('an unknown outcome filters nothing', () => {
  expect(filtersOf({ ...EVERYTHING, outcome: 'failed' }).outcome).toBe('failed');
  expect(filtersOf({ ...EVERYTHING, outcome: 'lost' })).not.toHaveProperty('outcome');
});
