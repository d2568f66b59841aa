/** Runs of reports: their order, and their remaining time. */
import type { Run } from '../api/types';

/** `runs` with `run` inserted or replaced, newest first. */
export function withRun(runs: readonly Run[], run: Run): Run[] {
  const known = runs.some((other) => other.id === run.id);
  const next = known ? runs.map((other) => (other.id === run.id ? run : other)) : [...runs, run];
  return next.sort((a, b) => b.id - a.id);
}

/** The remaining time of a run, rounded to the precision of the estimate. */
export function leftText(seconds: number): string {
  if (seconds < 10) return 'a few seconds left';
  if (seconds < 55) return `about ${Math.ceil(seconds / 10) * 10} s left`;
  const minutes = Math.max(1, Math.round(seconds / 60));
  if (minutes < 60) return `about ${minutes} m left`;
  return `about ${Math.floor(minutes / 60)} h ${minutes % 60} m left`;
}

export const isOver = (run: Run): boolean => run.state !== 'queued' && run.state !== 'running';
