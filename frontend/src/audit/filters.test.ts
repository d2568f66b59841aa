import { expect, test } from 'vitest';
import { EVERYTHING, filtersOf } from './filters';

test('days are the viewer\'s, and both of them are included', () => {
  const { since, until } = filtersOf({ ...EVERYTHING, from: '2026-03-01', to: '2026-03-02' });
  expect(new Date(since ?? 0).toString()).toContain('Mar 01 2026 00:00:00');
  expect(new Date(until ?? 0).toString()).toContain('Mar 03 2026 00:00:00');
});

test('a day that is not all there yet narrows nothing', () => {
  expect(filtersOf({ ...EVERYTHING, from: '2026-03', user: 'mara' })).toEqual({ user: 'mara', action: '', object: '' });
});

test('an outcome that does not exist narrows nothing', () => {
  expect(filtersOf({ ...EVERYTHING, outcome: 'failed' }).outcome).toBe('failed');
  expect(filtersOf({ ...EVERYTHING, outcome: 'lost' })).not.toHaveProperty('outcome');
});
