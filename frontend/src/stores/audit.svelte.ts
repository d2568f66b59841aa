import { audit, messageOf, type AuditFilters } from '../api/client';
import type { AuditEntry, AuditOutcome } from '../api/types';

/** What the page's fields hold; days are `YYYY-MM-DD` in the viewer's zone, both included. */
export type AuditForm = { user: string; action: string; object: string; outcome: string; from: string; to: string };

export const EVERYTHING: AuditForm = { user: '', action: '', object: '', outcome: '', from: '', to: '' };

function startOf(day: string, daysLater = 0): number | undefined {
  const [year, month, date] = day.split('-').map(Number);
  if (!year || !month || !date) return undefined;
  return new Date(year, month - 1, date + daysLater).getTime();
}

export const OUTCOMES: readonly AuditOutcome[] = ['done', 'partial', 'failed', 'refused'];

/** The filters that the platform is asked by. An outcome that does not exist, from an edited address, narrows nothing. */
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

/** The audit log, newest first, read a page at a time. */
export class AuditStore {
  entries = $state.raw<AuditEntry[]>([]);
  status = $state<'loading' | 'ready' | 'failed'>('loading');
  error = $state('');
  complete = $state(false);
  private asked = 0;
  private filters: AuditFilters = {};

  constructor(readonly page = 100) {}

  /** Begin anew, with what matches. What is on show stays until the answer is there. */
  async show(filters: AuditFilters): Promise<void> {
    this.filters = filters;
    await this.read([]);
  }

  async more(): Promise<void> {
    await this.read(this.entries);
  }

  private async read(known: AuditEntry[]): Promise<void> {
    const turn = ++this.asked; // an answer that was overtaken is not shown
    this.status = 'loading';
    try {
      const next = await audit(this.filters, known.at(-1)?.id ?? null, this.page);
      if (turn !== this.asked) return;
      this.entries = [...known, ...next];
      this.complete = next.length < this.page;
      this.status = 'ready';
    } catch (error) {
      if (turn !== this.asked) return;
      this.error = messageOf(error);
      this.status = 'failed';
    }
  }
}
