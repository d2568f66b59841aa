/** The platform's history of one row or of the cluster. */
import { history } from '../api/client';
import type { Columns } from './columns';
import type { Metric } from './history';
import { iso } from './window';

export type Scope =
  | { scope: 'cluster' }
  | { scope: 'topic'; topic: string }
  | { scope: 'channel'; topic: string; channel: string }
  | { scope: 'node'; node: string };
export type Kept = { stepSeconds: number; columns: Columns };
/** `to` is null for now. */
export type LoadHistory = (scope: Scope, metrics: readonly Metric[], from: number, to: number | null) => Promise<Kept>;

export const loadHistory: LoadHistory = async (scope, metrics, from, to) => {
  const kept = await history({ ...scope, series: metrics.join(','), from: iso(from), ...(to === null ? {} : { to: iso(to) }) });
  return {
    stepSeconds: kept.step_s,
    columns: [kept.times, ...metrics.map((metric) => kept.metrics[metric] ?? kept.times.map(() => null))],
  };
};
