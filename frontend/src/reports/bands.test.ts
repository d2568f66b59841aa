import { expect, test } from 'vitest';
import { rangeOf, tilesOf } from './bands';

const MAP = { step_ms: 60_000, bounds_ms: [0, 0.001, 1, 2], times: [0, 60_000], cells: [{ at: 0, band: 0, count: 1 }, { at: 60_000, band: 2, count: 100 }] };

test('each cell is a rectangle in seconds and milliseconds, above zero, the fullest with the share 1', () => {
  const [zero, full] = tilesOf(MAP, 1);
  expect(zero).toMatchObject({ from: 0, to: 60, low: 0.0005, high: 0.001, share: 0 });
  expect(full).toMatchObject({ from: 60, to: 120, low: 1, high: 2, share: 1, messages: 100 });
});

test('a single column has the length of a window', () => {
  expect(tilesOf({ ...MAP, step_ms: 0, cells: [{ at: 0, band: 1, count: 5 }] }, 300_000)[0]).toMatchObject({ from: 0, to: 300, share: 1 });
});

test('the range is that of all bands, above zero, and a map without messages has none', () => {
  expect(rangeOf(MAP)).toEqual([0.0005, 2]);
  expect(rangeOf({ ...MAP, bounds_ms: [], cells: [] })).toBeUndefined();
});
