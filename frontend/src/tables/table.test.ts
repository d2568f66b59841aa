import { expect, test } from 'vitest';
import { sortRows, visibleRange, wordsTest } from './table';

test('rows without a value come last in both orders', () => {
  const rows = [3, null, 1, null, 2];
  expect(sortRows(rows, (row) => row, false)).toEqual([1, 2, 3, null, null]);
  expect(sortRows(rows, (row) => row, true)).toEqual([3, 2, 1, null, null]);
});

test('names sort as people count: node-2 before node-10', () => {
  expect(sortRows(['node-10', 'node-2', 'node-1'], (row) => row, false)).toEqual(['node-1', 'node-2', 'node-10']);
});

test('equal rows keep their order, and the given array does not change', () => {
  const rows = [
    { n: 1, id: 'a' },
    { n: 0, id: 'b' },
    { n: 1, id: 'c' },
  ];
  expect(sortRows(rows, (row) => row.n, true).map((row) => row.id)).toEqual(['a', 'c', 'b']);
  expect(rows.map((row) => row.id)).toEqual(['a', 'b', 'c']);
});

test('a search finds all its words in any order and case', () => {
  expect(wordsTest('SETTLED pay')('payments.settled')).toBe(true);
  expect(wordsTest('settled orders')('payments.settled')).toBe(false);
  expect(wordsTest(' ')('anything')).toBe(true);
});

test('a long table renders the visible rows and a margin, within its bounds', () => {
  const at = (top: number): [number, number] => visibleRange({ top, viewport: 330, rowHeight: 33, total: 1000 }, 5);
  expect(at(200)).toEqual([0, 9]);
  expect(at(0)).toEqual([0, 15]);
  expect(at(-3300)).toEqual([95, 115]);
  expect(at(-33_000)).toEqual([995, 1000]);
  expect(at(-99_000)).toEqual([1000, 1000]);
});
