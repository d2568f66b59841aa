/** From a report's result table to the lines of a percentile chart. */
import type { Result, ResultCell, ResultColumn } from '../api/types';

export type PercentileSeries = {
  /** `orders / billing`: the values of the columns that tell one series from another. */
  group: string;
  /** Unix seconds of each window's start. */
  times: number[];
  /** One column per percentile, in milliseconds. */
  values: (number | null)[][];
};
export type PercentileChart = { percentiles: string[]; series: PercentileSeries[] };

const MS_PER: Record<string, number> = { ns: 1e-6, us: 1e-3, 'µs': 1e-3, ms: 1, s: 1000 };

/** How many milliseconds one of the column's unit is; null if it holds no time span. */
export function msPerUnit(column: ResultColumn): number | null {
  return MS_PER[column.unit] ?? null;
}

export const isTime = (column: ResultColumn): boolean => column.type === 'timestamp';

/** `p50`, `p99`, `p99_9`, `p999_ns` and the like, as `p50`, `p99`, `p99.9`; null for other columns. */
export function percentileName(name: string): string | null {
  const match = /^p(\d{2})[._]?(\d*)(?:_(?:ns|us|ms|s))?$/.exec(name);
  return match ? `p${match[1]}${match[2] ? `.${match[2]}` : ''}` : null;
}

/** Null when the result has no percentiles over time. */
export function percentileChart(result: Result): PercentileChart | null {
  const at = result.columns.findIndex(isTime);
  const percentiles = result.columns.flatMap((column, index) => {
    const name = percentileName(column.name);
    return name === null ? [] : [{ name, index, scale: msPerUnit(column) ?? 1 }];
  });
  if (at < 0 || percentiles.length === 0) return null;
  const groups = result.columns.flatMap((column, index) => (column.type === 'string' ? [index] : []));
  const byGroup = new Map<string, [number, ResultCell[]][]>();
  for (const row of result.rows) {
    const time = row[at];
    if (typeof time !== 'number') continue;
    const group = groups.map((index) => row[index] ?? '–').join(' / ');
    const rows = byGroup.get(group) ?? [];
    rows.push([time, row]);
    byGroup.set(group, rows);
  }
  const series = [...byGroup.entries()].map(([group, rows]): PercentileSeries => {
    rows.sort((a, b) => a[0] - b[0]);
    return {
      group,
      times: rows.map(([time]) => time / 1000),
      values: percentiles.map(({ index, scale }) =>
        rows.map(([, row]) => {
          const cell = row[index];
          return typeof cell === 'number' ? cell * scale : null;
        }),
      ),
    };
  });
  series.sort((a, b) => a.group.localeCompare(b.group, 'en', { numeric: true }));
  return { percentiles: percentiles.map(({ name }) => name), series };
}
