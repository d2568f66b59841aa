/** A result's figures for charts, as the platform summarises them. */
import { resultSeries } from '../api/client';
import type { ResultGroup } from '../api/types';
import { pointsCells, type Cells } from './results';

/** The lines of a chart: `points`, each of `stepMs`, summarise `windows` windows. */
export type Line = { cells: Cells[]; stepMs: number; windows: number };

const HOUR_MS = 3_600_000;
/** The platform's maximum. */
const MAX_POINTS = 10_000;

/** Columns of one topic and channel over all of a result; of the rows of `figure`, if rows are of one figure each. */
export async function lineOf(id: number, group: ResultGroup, figures: readonly string[], points = 1000, figure?: string): Promise<Line> {
  const rows = { topic: group.topic, channel: group.channel ?? '', ...(figure === undefined ? {} : { figure }) };
  const series = await resultSeries(id, figures, { ...rows, points });
  return { cells: pointsCells(figures, series.points), stepMs: series.step_ms, windows: series.window_count };
}

/** One figure of a line, at least hourly, for a map of hours. */
export async function hoursOf(id: number, group: ResultGroup, figure: string, line: Line): Promise<Cells[]> {
  const times = line.cells.map((cells) => Number(cells('window_start')));
  const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
  if (line.stepMs <= HOUR_MS || line.windows <= line.cells.length) return line.cells;
  return (await lineOf(id, group, [figure], Math.min(MAX_POINTS, Math.ceil(span / HOUR_MS) + 48))).cells;
}
