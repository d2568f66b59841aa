/** A result's figures for charts, as the platform summarises them. */
import { resultSeries } from '../api/client';
import type { ResultGroup } from '../api/types';
import { pointsCells, type Cells } from './results';

type Group = Pick<ResultGroup, 'topic' | 'channel'>;
/** A part of a result in Unix milliseconds: the rows whose windows begin in [since, until). */
export type Part = { since?: number; until?: number };
/** The points of a chart, each `stepMs` long. Together they summarise `windows` windows. */
export type Line = { cells: Cells[]; stepMs: number; windows: number };

const HOUR_MS = 3_600_000;
/** The platform's maximum. */
const MAX_POINTS = 10_000;

/** Figures of one topic and channel over all of a result, or over a part of it. `figure` chooses the rows of a result with a row per figure. */
export async function lineOf(id: number, group: Group, figures: readonly string[], points = 1000, part: Part = {}, figure?: string): Promise<Line> {
  const rows = { topic: group.topic, channel: group.channel ?? '', ...part, ...(figure === undefined ? {} : { figure }) };
  const series = await resultSeries(id, figures, { ...rows, points });
  return { cells: pointsCells(figures, series.points), stepMs: series.step_ms, windows: series.window_count };
}

/** One figure of a line, at least hourly, for a map of hours. */
export async function hoursOf(id: number, group: Group, figure: string, line: Line): Promise<Cells[]> {
  const times = line.cells.map((cells) => Number(cells('window_start')));
  const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
  if (line.stepMs <= HOUR_MS || line.windows <= line.cells.length) return line.cells;
  return (await lineOf(id, group, [figure], Math.min(MAX_POINTS, Math.ceil(span / HOUR_MS) + 48))).cells;
}
