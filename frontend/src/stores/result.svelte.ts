import * as api from '../api/client';
import type { ResultRows } from '../api/client';
import type { Result, ResultGroup } from '../api/types';
import { pointsCells, type Cells } from '../reports/results';

export type Question = ResultRows & { sort?: string; offset: number };

/** A page of a run's result, filtered and sorted by the platform. The shown rows stay until the answer arrives. */
export class ResultStore {
  result = $state.raw<Result | null>(null);
  /** Index of the first row of the shown page. */
  offset = $state(0);
  groups = $state.raw<ResultGroup[]>([]);
  error = $state('');
  #asked = 0;

  constructor(
    readonly id: number,
    readonly pageRows = 500,
  ) {}

  async show(question: Question): Promise<void> {
    const turn = ++this.#asked; // outdated answers are not shown
    try {
      const result = await api.result(this.id, { ...question, limit: this.pageRows });
      if (turn !== this.#asked) return;
      const first = this.result === null;
      [this.result, this.offset, this.error] = [result, question.offset, ''];
      if (first && result.columns.some(({ name }) => name === 'channel')) this.groups = await api.resultGroups(this.id);
    } catch (error) {
      if (turn !== this.#asked) return;
      const { sort, ...unsorted } = question;
      // An address may name a column that this result does not have: it is ignored.
      if (sort !== undefined && this.result === null && error instanceof api.ApiError && error.status === 422) await this.show(unsorted);
      else this.error = api.messageOf(error);
    }
  }
}

/** The lines of a chart: `points`, each of `stepMs`, summarise `windows` windows. */
export type Line = { cells: Cells[]; stepMs: number; windows: number };
const HOUR_MS = 3_600_000;
/** The platform's maximum. */
const MAX_POINTS = 10_000;

/** Figures of one topic and channel over all of a result. */
export async function lineOf(id: number, group: ResultGroup, figures: readonly string[], points = 1000): Promise<Line> {
  const rows = { topic: group.topic, channel: group.channel ?? '' };
  const series = await api.resultSeries(id, figures, { ...rows, points });
  return { cells: pointsCells(figures, series.points), stepMs: series.step_ms, windows: series.window_count };
}

/** One figure of a line, at least hourly, for a map of hours. */
export async function hoursOf(id: number, group: ResultGroup, figure: string, line: Line): Promise<Cells[]> {
  const times = line.cells.map((cells) => Number(cells('window_start')));
  const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
  if (line.stepMs <= HOUR_MS || line.windows <= line.cells.length) return line.cells;
  return (await lineOf(id, group, [figure], Math.min(MAX_POINTS, Math.ceil(span / HOUR_MS) + 48))).cells;
}
