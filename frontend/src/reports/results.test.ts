import { expect, test } from 'vitest';
import type { Result, ResultCell, ResultColumn } from '../api/types';
import { backTestText, cellsOf, cellText, columnsOf, dayTone, heat, heatDays, heldPercent, movers, pointsCells, shareText, unusualOf, withheld } from './results';

function result(names: string[], rows: ResultCell[][]): Result {
  return { columns: names.map((name) => ({ name, type: 'number', unit: '', meaning: '' })), rows, total: rows.length, matching: rows.length, pdf: false, hours: '', covered: {} };
}
const at = (day: number, hour: number): number => new Date(2026, 2, day, hour, 15).getTime();

test('a heat map has a row per day of the viewer and shows the worst of each hour', () => {
  const rows = cellsOf(result(['window_start', 'p99_ms'], [[at(15, 3), 7], [at(14, 3), 5], [at(14, 3), 9], [at(14, 4), null]]));
  const days = heatDays(rows, 'p99_ms');
  expect(days.map(({ day }) => day)).toEqual(['Sat 14 Mar', 'Sun 15 Mar'].map((day) => expect.stringContaining(day.slice(4))));
  expect(days[0]?.hours[3]).toBe(9);
  expect(days[0]?.hours[4]).toBeNull();
});

test('heat is logarithmic, and a single value is the hottest', () => {
  expect([heat(1, 1, 100), heat(10, 1, 100), heat(100, 1, 100), heat(5, 5, 5)]).toEqual([0, 0.5, 1, 1]);
});

test.each([
  [99.5, 99, 'ok'],
  [99, 99, 'ok'],
  [98.5, 99, 'warn'],
  [97.9, 99, 'bad'],
  [97.9, 95, 'ok'],
  [99.99, 100, 'bad'],
  [null, 99, 'none'],
])('a day of %s percent under an objective of %s is %s', (percent, objective, tone) => {
  expect(dayTone(percent, objective)).toBe(tone);
});

test('a share below 100 % is not rounded to 100 %', () => {
  expect([100, 99.9999, 99.95, 99.123, 97.96, null].map(shareText)).toEqual(['100 %', '99.999 %', '99.950 %', '99.12 %', '98.0 %', '–']);
  expect(heldPercent({ at: 0, held: 47, total: 48 })).toBeCloseTo(97.917, 3);
  expect(heldPercent({ at: 0, held: 0, total: 0 })).toBeNull();
});

const NUMBER: ResultColumn = { name: 'target', type: 'number', unit: '', meaning: '' };

test.each([
  [NUMBER, 2000, 'ms', '2.00 s'],
  [NUMBER, -1500, 'ms', '−1.50 s'],
  [NUMBER, 5000, 'messages', '5,000 messages'],
  [NUMBER, 60.12, 'messages/s', '60.1 messages/s'],
  [NUMBER, 2.5, '%', '2.5 %'],
  [NUMBER, 12.5, null, '12.5'],
  [NUMBER, null, 'ms', '–'],
  [{ ...NUMBER, name: 'max_ms', unit: 'ms' }, 2000, null, '2.00 s'],
  [{ ...NUMBER, name: 'change_percent', unit: '%' }, 6029.4, 'ms', '+6,029 %'],
  [{ ...NUMBER, name: 'died_percent', unit: '%' }, 0.0498, null, '0.050 %'],
  [{ ...NUMBER, name: 'died_percent', unit: '%' }, 0.00004, null, '< 0.001 %'],
  [{ ...NUMBER, name: 'died_percent', unit: '%' }, 0, null, '0 %'],
  [{ ...NUMBER, name: 'change_percent', unit: '%' }, -0.26, null, '−0.26 %'],
  [{ ...NUMBER, name: 'held_percent', unit: '%' }, 99.996, 'ms', '99.996 %'],
  [{ ...NUMBER, name: 'count', type: 'integer', unit: 'messages' }, 1234567, 'ms', '1,234,567'],
] as const)('the cell of %o with the value %s in a row in %s is %s', (column, cell, unit, text) => {
  expect(cellText(column, cell, unit)).toBe(text);
});

test('points of a series have the format of rows', () => {
  const rows = pointsCells(['p50_ms', 'p99_ms'], [[1000, 1, 5], [2000, null, 7]]);
  expect(columnsOf(rows, ['p99_ms', 'p50_ms'])).toEqual([[1, 2], [5, 7], [1, null]]);
});

test('the largest changes keep their order, and a topic’s own row has no channel', () => {
  const names = ['topic', 'channel', 'figure', 'unit', 'now', 'before', 'change_percent', 'state'];
  expect(movers(cellsOf(result(names, [['a', null, 'in_rate', 'messages/s', 2, 1, 100, 'changed']])))).toEqual([
    { name: 'a', figure: 'in_rate', unit: 'messages/s', now: 2, before: 1, percent: 100, state: 'changed' },
  ]);
});

test('lines come in the order of time', () => {
  expect(columnsOf(cellsOf(result(['window_start', 'in_rate'], [[2000, 5], [1000, null]])), ['in_rate'])).toEqual([[1, 2], [null, 5]]);
});

test('a withheld percentile has a reason, and a shown one has none', () => {
  const [few, none, fine] = cellsOf(result(['count', 'p50_ms', 'p999_ms'], [[10, 1, null], [0, null, null], [5000, 1, 2]]));
  expect(few && withheld(few, 'p999_ms', 1000)).toMatch('10 messages are fewer than the 1000');
  expect(few && withheld(few, 'p50_ms', 1000)).toBeNull();
  expect(none && withheld(none, 'p50_ms', 1000)).toMatch('nothing was finished');
  expect(fine && withheld(fine, 'p999_ms', 1000)).toBeNull();
});

test('hours whose score reaches the threshold are unusual, others are gaps', () => {
  const rows = cellsOf(result(['window_start', 'actual', 'score'], [[2000, 9, 4], [1000, 5, 3.9], [3000, null, null]]));
  expect(unusualOf(rows, 4)).toEqual([null, 9, null]);
});

test('a back-test is shown with its error beside that of repetition, or not at all', () => {
  const names = ['unit', 'season', 'history_hours', 'tested_hours', 'mae', 'mase', 'within_80_percent', 'within_95_percent'];
  const [tested, untested] = cellsOf(result(names, [['messages', 'week', 672, 168, 12, 0.754, 80.4, 94], ['messages', 'day', 150, null, null, null, null, null]]));
  expect(tested && backTestText(tested)).toBe(
    'Made from 672 hours, with the season of a week. Back-test on the last 168 hours: mean absolute error 12, 0.75 times that of repeating the last week; 80.4 % of the hours were in the 80 % band, 94 % in the 95 % band.',
  );
  expect(untested && backTestText(untested)).toBe('Made from 150 hours, with the season of a day.');
});
