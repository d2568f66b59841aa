import { audit, messageOf, type AuditFilters } from '../api/client';
import type { AuditEntry } from '../api/types';

/** The audit trail, newest first, read a page at a time. */
export class AuditStore {
  entries = $state.raw<AuditEntry[]>([]);
  status = $state<'loading' | 'ready' | 'failed'>('loading');
  error = $state('');
  complete = $state(false);
  private asked = 0;
  private filters: AuditFilters = {};

  constructor(readonly page = 100) {}

  /** Request the first page with other filters. The shown entries stay until the answer arrives. */
  async show(filters: AuditFilters): Promise<void> {
    this.filters = filters;
    await this.read([]);
  }

  async more(): Promise<void> {
    await this.read(this.entries);
  }

  private async read(known: AuditEntry[]): Promise<void> {
    const turn = ++this.asked; // outdated answers are not shown
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
