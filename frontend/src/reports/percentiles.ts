/** The meaning of a result's columns, from their names and units. */
import type { ResultColumn } from '../api/types';

const MS_PER: Record<string, number> = { ns: 1e-6, us: 1e-3, 'µs': 1e-3, ms: 1, s: 1000 };

/** Milliseconds per `unit`; null if it is not a unit of time. */
export function msPerUnit(unit: string): number | null {
  return MS_PER[unit] ?? null;
}

export const isTime = (column: ResultColumn): boolean => column.type === 'timestamp';

/** `p50`, `p99`, `p99_9`, `p999_ns` and the like, as `p50`, `p99`, `p99.9`; null for other columns. */
export function percentileName(name: string): string | null {
  const match = /^p(\d{2})[._]?(\d*)(?:_(?:ns|us|ms|s))?$/.exec(name);
  return match ? `p${match[1]}${match[2] ? `.${match[2]}` : ''}` : null;
}
