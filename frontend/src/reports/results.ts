/** Converts a report's result to the data of its charts. */
import type { Result, ResultCell, ResultColumn, ResultDay, ResultGroup, Run } from '../api/types';
import { bytes, count, DASH, dateTime, duration, plural, rate, short } from '../format/format';
import type { Sort } from '../tables/table';
import { isTime, msPerUnit } from './percentiles';

/** The order in which the rows to look at come first; null for results without one. */
export const worstFirst = ({ worst }: Run): Sort | null => (worst === '' ? null : { column: worst, descending: true });

/**
 * The columns as a phone shows them: whose row it is, then the figure to look at, which is the first of `figures` that is
 * right-aligned. The others follow, and can be scrolled to.
 */
export function phoneOrder<C extends { key: string; align?: 'left' | 'right' }>(columns: readonly C[], figures: readonly (string | undefined)[]): C[] {
  const first = columns.find(({ key }) => key === 'topic');
  const found = figures.map((name) => columns.find(({ key, align }) => key === name && align === 'right')).find((column) => column !== undefined);
  const leading = [first, found].filter((column) => column !== undefined);
  return [...leading, ...columns.filter((column) => !leading.includes(column))];
}

/** The earlier figures that a row is compared with, and the changes. */
export const isComparison = (name: string): boolean => /_(change_percent|before|before_ms)$/.test(name);

/** Whether rows were to be compared with an earlier period, of which the archive may have had nothing. */
export const wasCompared = ({ parameters }: Run): boolean => !['none', null, undefined, ''].includes(parameters['compared_with'] as string);

/** A cell by its column's name; null if the result has no such column. */
export type Cells = (name: string) => ResultCell;

export function cellsOf(result: Result): Cells[] {
  const at = new Map(result.columns.map((column, index) => [column.name, index]));
  return result.rows.map((row): Cells => (name) => row[at.get(name) ?? -1] ?? null);
}

/** Points of a series (a time, then the figures) as rows. */
export function pointsCells(figures: readonly string[], points: readonly ResultCell[][]): Cells[] {
  const at = new Map(['window_start', ...figures].map((name, index) => [name, index]));
  return points.map((point): Cells => (name) => point[at.get(name) ?? -1] ?? null);
}

const numberOf = (cell: ResultCell): number | null => (typeof cell === 'number' ? cell : null);
const textOf = (cell: ResultCell): string => (cell === null ? DASH : String(cell));

/** `orders / billing`; a topic's own row has no channel. */
export const groupOf = (cells: Cells): string => [cells('topic'), cells('channel')].filter((name) => name !== null).join(' / ');

export const nameOf = ({ topic, channel }: ResultGroup): string => (channel === null ? topic : `${topic} / ${channel}`);

export function sortedGroups(groups: readonly ResultGroup[]): ResultGroup[] {
  return [...groups].sort((a, b) => nameOf(a).localeCompare(nameOf(b), 'en', { numeric: true }));
}

/** Unix seconds, then a column per figure, in the order of time. */
export function columnsOf(rows: readonly Cells[], figures: readonly string[]): [number[], ...(number | null)[][]] {
  const timed = rows
    .flatMap((cells): [number, Cells][] => {
      const at = numberOf(cells('window_start'));
      return at === null ? [] : [[at / 1000, cells]];
    })
    .sort((a, b) => a[0] - b[0]);
  return [timed.map(([at]) => at), ...figures.map((figure) => timed.map(([, cells]) => numberOf(cells(figure))))];
}

export type HeatDay = { day: string; at: number; hours: (number | null)[] };

/**
 * The largest value of `figure` in each hour of each day, in the viewer's zone, newest day last. Not the mean, because
 * percentiles have no mean.
 */
export function heatDays(rows: readonly Cells[], figure: string): HeatDay[] {
  const days = new Map<string, HeatDay>();
  for (const cells of rows) {
    const at = numberOf(cells('window_start'));
    const value = numberOf(cells(figure));
    if (at === null || value === null) continue;
    const date = new Date(at);
    const day = date.toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', month: 'short' });
    const known = days.get(day) ?? { day, at, hours: Array<number | null>(24).fill(null) };
    known.hours[date.getHours()] = Math.max(value, known.hours[date.getHours()] ?? 0);
    days.set(day, known);
  }
  return [...days.values()].sort((a, b) => a.at - b.at);
}

/** The position of a value between the least and the most, on a logarithmic scale: 0 to 1. */
export function heat(value: number, least: number, most: number): number {
  if (most <= least) return 1;
  const log = (x: number): number => Math.log10(Math.max(x, 1e-6));
  return (log(value) - log(least)) / (log(most) - log(least));
}

/** Percentage of a day's messages whose windows met the target; null without any. */
export const heldPercent = ({ held, total }: ResultDay): number | null => (total > 0 ? (100 * held) / total : null);

export type DayTone = 'none' | 'ok' | 'warn' | 'bad';

/** Days that met the objective, days that missed it by at most its error budget, and worse ones. */
export function dayTone(percent: number | null, objectivePercent: number): DayTone {
  if (percent === null) return 'none';
  if (percent >= objectivePercent) return 'ok';
  return 100 - percent <= 2 * (100 - objectivePercent) ? 'warn' : 'bad';
}

/** A percentage that is not rounded up to 100: `99.95 %` is not `100 %`. */
export function shareText(percent: number | null): string {
  if (percent === null) return DASH;
  if (percent === 100) return '100 %';
  const digits = percent >= 99.9 ? 3 : percent >= 99 ? 2 : 1;
  return `${Math.min(100 - 10 ** -digits, percent).toFixed(digits)} %`;
}

export type Mover = { name: string; figure: string; unit: string; now: number | null; before: number | null; percent: number | null; state: string };

/** `depth_mean` as `depth mean`, `p99_ms` as `p99`, because the unit is shown too. */
export const figureName = (figure: string): string => figure.replace(/_ms$/, '').replaceAll('_', ' ');

/** `6,029 %`, `12.5 %`, `0.050 %`: a small share is not `0.0 %`. */
function percentText(value: number): string {
  const size = Math.abs(value);
  if (size >= 999.5) return `${count(value)} %`;
  if (size === 0 || size >= 1) return `${short(value)} %`;
  if (size < 0.001) return value < 0 ? '> −0.001 %' : '< 0.001 %';
  return `${value < 0 ? '−' : ''}${size.toPrecision(2)} %`;
}
/** `+12.5 %`, `−3 %`. */
const changeText = (value: number): string => (value > 0 ? `+${percentText(value)}` : percentText(value));

/** Columns whose figures are in the unit of the row's column `unit`. */
const IN_UNIT_OF_ROW = new Set([
  ...['target', 'worst_value', 'now', 'before', 'difference'],
  ...['actual', 'forecast', 'low_95', 'low_80', 'high_80', 'high_95', 'mae', 'expected', 'low', 'high'],
]);

/** A cell of a result as text; `rowUnit` is the row's own `unit`. */
export function cellText(column: ResultColumn, cell: ResultCell, rowUnit: ResultCell): string {
  if (cell === null) return DASH;
  if (typeof cell === 'string') return column.name === 'figure' ? figureName(cell) : cell;
  if (isTime(column)) return dateTime(cell);
  const ofRow = IN_UNIT_OF_ROW.has(column.name) && typeof rowUnit === 'string';
  const unit = ofRow ? rowUnit : column.unit;
  const scale = msPerUnit(unit);
  if (scale !== null) return duration(cell * scale);
  if (unit === 'bytes/s' || (ofRow && unit === 'bytes')) return bytes(cell);
  if (unit === '%' && column.name.endsWith('change_percent')) return changeText(cell);
  if (unit === '%') return /(^|_)held_percent$/.test(column.name) ? shareText(cell) : percentText(cell);
  const text = Number.isInteger(cell) && (ofRow || column.type === 'integer') ? count(cell) : short(cell);
  return ofRow ? `${text} ${unit}` : text;
}

/** The largest changes, in the order of the result. */
export function movers(rows: readonly Cells[], most = 12): Mover[] {
  return rows.slice(0, most).map((cells) => ({
    name: groupOf(cells),
    figure: textOf(cells('figure')),
    unit: cells('unit') === null ? '' : textOf(cells('unit')),
    now: numberOf(cells('now')),
    before: numberOf(cells('before')),
    percent: numberOf(cells('change_percent')),
    state: textOf(cells('state')),
  }));
}

/** The reason for an empty cell of a latency result; null if it is not withheld. */
export function withheld(cells: Cells, column: string, minimumCount: number): string | null {
  if (!/^p\d+_ms$/.test(column) || cells(column) !== null) return null;
  const finished = numberOf(cells('count')) ?? 0;
  if (finished === 0) return 'nothing was finished in this window';
  return column === 'p999_ms' && finished < minimumCount
    ? `withheld: ${plural(finished, 'message is', 'messages are')} fewer than the ${minimumCount} it needs`
    : null;
}

/** The charts of the reports with a row per figure: `columns` are read, of which `lines` are drawn. */
export const BANDED: Readonly<Record<'forecast' | 'anomalies', { figures: readonly string[]; ofTopics: readonly string[]; columns: readonly string[]; lines: readonly string[] }>> = {
  forecast: {
    figures: ['depth', 'in_rate', 'out_rate', 'bytes_behind', 'capacity_rate'],
    ofTopics: ['depth', 'in_rate'],
    columns: ['low_95', 'high_95', 'low_80', 'high_80', 'forecast', 'actual'],
    lines: ['low_95', 'high_95', 'low_80', 'high_80', 'forecast', 'actual'],
  },
  anomalies: {
    figures: ['depth', 'in_rate', 'out_rate', 'requeue_rate', 'timeout_rate', 'consumers'],
    ofTopics: ['depth', 'in_rate'],
    columns: ['low', 'high', 'expected', 'actual', 'score'],
    lines: ['low', 'high', 'expected', 'actual'],
  },
};

/** The actual value of each hour whose score is at least the threshold, in the order of time; null for other hours. */
export function unusualOf(rows: readonly Cells[], threshold: number): (number | null)[] {
  const [, actual, score] = columnsOf(rows, ['actual', 'score']);
  return (actual ?? []).map((value, at) => ((score?.[at] ?? 0) >= threshold ? value : null));
}

/** How values of a unit are written. */
export function formatOf(unit: string): (value: number | null) => string {
  if (unit === 'bytes') return bytes;
  if (unit === 'messages/s') return (value) => (value === null ? DASH : `${rate(value)}/s`);
  return (value) => (value === null ? DASH : short(value));
}

/** How good a forecast of the past was, from one of its rows. */
export function backTestText(cells: Cells): string {
  const unit = String(cells('unit') ?? '');
  const [mae, mase, within80, within95] = ['mae', 'mase', 'within_80_percent', 'within_95_percent'].map((name) => numberOf(cells(name)));
  const hours = (column: string): string => plural(numberOf(cells(column)) ?? 0, 'hour');
  const season = cells('season') === 'week' ? 'week' : 'day';
  const made = `Made from ${hours('history_hours')}, with the season of a ${season}.`;
  if (mae == null) return made;
  const share = mase == null ? '' : `, ${mase.toFixed(2)} times that of repeating the last ${season}`;
  const within = `${percentText(within80 ?? 0)} of the hours were in the 80 % band, ${percentText(within95 ?? 0)} in the 95 % band`;
  return `${made} Back-test on the last ${hours('tested_hours')}: mean absolute error ${formatOf(unit)(mae)}${share}; ${within}.`;
}
