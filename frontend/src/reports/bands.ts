/** A heat map of latencies: its rectangles on a chart, and the range of its value axis. */
import type { ResultHeat } from '../api/types';
import { heat } from './results';

/** A rectangle: its times in Unix seconds, its latencies in milliseconds, and how dark it is, 0 to 1. */
export type Tile = { from: number; to: number; low: number; high: number; share: number; messages: number };

/** The lower end of the band from 0, which a logarithmic axis cannot show. */
const LEAST_MS = 0.0005;

/** The rectangles; a single column is `aloneMs` long. */
export function tilesOf(map: ResultHeat, aloneMs: number): Tile[] {
  const most = Math.max(1, ...map.cells.map(({ count }) => count));
  const step = (map.step_ms || aloneMs) / 1000;
  return map.cells.map(({ at, band, count }) => ({
    from: at / 1000,
    to: at / 1000 + step,
    low: Math.max(map.bounds_ms[band] ?? 0, LEAST_MS),
    high: map.bounds_ms[band + 1] ?? 0,
    share: heat(count, 1, most),
    messages: count,
  }));
}

/** The least and the largest latency of the map; undefined without messages. */
export function rangeOf(map: ResultHeat): [low: number, high: number] | undefined {
  const [low, high] = [map.bounds_ms[0], map.bounds_ms.at(-1)];
  return low === undefined || high === undefined ? undefined : [Math.max(low, LEAST_MS), high];
}
