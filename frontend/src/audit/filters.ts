/** Filters of the audit trail. */
import type { AuditFilters } from '../api/client';
import type { AuditOutcome } from '../api/types';

/** The page's fields; days are `YYYY-MM-DD` in the viewer's zone, both included. */
export type AuditForm = { user: string; action: string; object: string; outcome: string; from: string; to: string };

export const EVERYTHING: AuditForm = { user: '', action: '', object: '', outcome: '', from: '', to: '' };

function startOf(day: string, daysLater = 0): number | undefined {
  const [year, month, date] = day.split('-').map(Number);
  if (!year || !month || !date) return undefined;
  return new Date(year, month - 1, date + daysLater).getTime();
}

export const OUTCOMES: readonly AuditOutcome[] = ['done', 'partial', 'failed', 'refused', 'running'];

/** The request's filters. An unknown outcome, from an edited address, is ignored. */
export function filtersOf({ user, action, object, outcome, from, to }: AuditForm): AuditFilters {
  const filters: AuditFilters = { user, action, object };
  const known = OUTCOMES.find((each) => each === outcome);
  if (known !== undefined) filters.outcome = known;
  const since = startOf(from);
  const until = startOf(to, 1);
  if (since !== undefined) filters.since = since;
  if (until !== undefined) filters.until = until;
  return filters;
}
