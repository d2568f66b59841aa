import { expect, test } from 'vitest';
import { decades, hasNumbers, isDecade, isolated, linePath, linePoints, timeRange, zeroBased } from './scale';

test('a sparkline begins at zero, so that a constant value has a height', () => {
  expect(linePoints([10, 10], { width: 10, height: 10 })).toEqual([
    [
      [0, 0],
      [10, 0],
    ],
  ]);
  expect(linePoints([0, 0], { width: 10, height: 10 })).toEqual([
    [
      [0, 10],
      [10, 10],
    ],
  ]);
});

test('a sparkline with few values is at the right', () => {
  expect(linePoints([1, 1], { width: 100, height: 10, span: 11 })[0]?.map(([x]) => x)).toEqual([90, 100]);
});

test('a gap splits the line', () => {
  const lines = linePoints([1, NaN, 1, null, 1, 1], { width: 5, height: 1 });
  expect(lines.map((line) => line.length)).toEqual([1, 1, 2]);
  expect(linePath(lines)).toBe('M0 0h0.1M2 0h0.1M4 0L5 0');
});

test('a sparkline without values is empty', () => {
  expect(linePath(linePoints([], { width: 10, height: 10 }))).toBe('');
});

test('axes are never empty', () => {
  expect(timeRange(7200, 7200, 3600)).toEqual([5400, 9000]);
  expect(timeRange(60, 120, 3600)).toEqual([60, 120]);
  expect(zeroBased(null, null)).toEqual([0, 1]);
  expect(zeroBased(0, 0)).toEqual([0, 1]);
  expect(zeroBased(2, 100)).toEqual([0, 108]);
  expect(zeroBased(0, 1, 4)).toEqual([0, 4]);
  expect(decades(null, null)).toEqual([1, 10]);
  expect(decades(0, 50)).toEqual([10, 100]);
  expect(decades(0.3, 80)).toEqual([0.1, 100]);
  expect(decades(10, 10)).toEqual([10, 100]);
});

test('a known value between two gaps is a point, because a line would not show it', () => {
  expect(isolated([null, 5, null, 1, 2, null])).toEqual([1]);
  expect(isolated([0])).toEqual([0]);
  expect(isolated([3, null, null, 0])).toEqual([0, 3]);
  expect(isolated([1, 2, 3])).toEqual([]);
});

test('a chart without a value says so, also if it has times', () => {
  expect(hasNumbers([[], []])).toBe(false);
  expect(hasNumbers([[1, 2], [null, NaN], [null, null]])).toBe(false);
  expect(hasNumbers([[1, 2], [null, null], [null, 0]])).toBe(true);
});

test('powers of ten are distinguished from values between them', () => {
  expect([0.001, 0.1, 1, 10, 1000].map(isDecade)).toEqual([true, true, true, true, true]);
  expect([0.2, 2, 5, 99, 0].map(isDecade)).toEqual([false, false, false, false, false]);
});
