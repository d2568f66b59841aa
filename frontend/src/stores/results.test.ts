import { expect, test } from 'vitest';
import type { Result, ResultCell } from '../api/types';
import { calendarDays, cellsOf, columnsOf, heat, heatDays, movers, withheld } from './results';

function result(names: string[], rows: ResultCell[][]): Result {
  return { columns: names.map((name) => ({ name, type: 'number', unit: '' })), rows, total: rows.length };
}
const at = (day: number, hour: number): number => new Date(2026, 2, day, hour, 15).getTime();

test('a heat map has a row per day of the viewer and shows the worst of each hour', () => {
  const rows = cellsOf(result(['window_start', 'p99_ms'], [[at(15, 3), 7], [at(14, 3), 5], [at(14, 3), 9], [at(14, 4), null]]));
  const days = heatDays(rows, 'p99_ms');
  expect(days.map(({ day }) => day)).toEqual(['Sat 14 Mar', 'Sun 15 Mar'].map((day) => expect.stringContaining(day.slice(4))));
  expect(days[0]?.hours[3]).toBe(9);
  expect(days[0]?.hours[4]).toBeNull();
});

test('heat is logarithmic, and one value alone is the hottest', () => {
  expect([heat(1, 1, 100), heat(10, 1, 100), heat(100, 1, 100), heat(5, 5, 5)]).toEqual([0, 0.5, 1, 1]);
});

test('a calendar sums the windows of each day and leaves the period out', () => {
  const names = ['span', 'span_start', 'objective', 'held_count', 'window_count'];
  const rows = cellsOf(
    result(names, [
      ['day', 86_400_000, 'latency', 23, 24],
      ['day', 86_400_000, 'latency', 24, 24],
      ['day', 86_400_000, 'backlog', 0, 24],
      ['period', 0, 'latency', 1, 1],
    ]),
  );
  expect(calendarDays(rows, 'latency')).toEqual([{ at: 86_400_000, held: 47, windows: 48, percent: (100 * 47) / 48 }]);
});

test('movers keep the order and the topic’s own row has no channel', () => {
  const names = ['topic', 'channel', 'figure', 'unit', 'now', 'before', 'change_percent', 'state'];
  expect(movers(cellsOf(result(names, [['a', null, 'in_rate', 'messages/s', 2, 1, 100, 'changed']])))).toEqual([
    { name: 'a', figure: 'in_rate', unit: 'messages/s', now: 2, before: 1, percent: 100, state: 'changed' },
  ]);
});

test('lines come in the order of time', () => {
  expect(columnsOf(cellsOf(result(['window_start', 'in_rate'], [[2000, 5], [1000, null]])), ['in_rate'])).toEqual([[1, 2], [null, 5]]);
});

test('a withheld percentile says why, and one that is there does not', () => {
  const [few, none, fine] = cellsOf(result(['count', 'p50_ms', 'p999_ms'], [[10, 1, null], [0, null, null], [5000, 1, 2]]));
  expect(few && withheld(few, 'p999_ms', 1000)).toMatch('10 messages are fewer than the 1000');
  expect(few && withheld(few, 'p50_ms', 1000)).toBeNull();
  expect(none && withheld(none, 'p50_ms', 1000)).toMatch('nothing was finished');
  expect(fine && withheld(fine, 'p999_ms', 1000)).toBeNull();
});
