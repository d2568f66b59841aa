/** Runs of reports: their order, and how long one will still take. */
import type { Run } from '../api/types';

/** `runs` with `run` put in its place, newest first. */
export function withRun(runs: readonly Run[], run: Run): Run[] {
  const known = runs.some((other) => other.id === run.id);
  const next = known ? runs.map((other) => (other.id === run.id ? run : other)) : [...runs, run];
  return next.sort((a, b) => b.id - a.id);
}

/** How long a run will still take, as precisely as that can be known. */
export function leftText(seconds: number): string {
  if (seconds < 10) return 'a few seconds left';
  if (seconds < 55) return `about ${Math.ceil(seconds / 10) * 10} s left`;
  const minutes = Math.max(1, Math.round(seconds / 60));
  if (minutes < 60) return `about ${minutes} m left`;
  return `about ${Math.floor(minutes / 60)} h ${minutes % 60} m left`;
}

export const isOver = (run: Run): boolean => run.state !== 'queued' && run.state !== 'running';
