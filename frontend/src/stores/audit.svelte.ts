import { audit, messageOf } from '../api/client';
import type { AuditEntry } from '../api/types';

/** Whether every word of `filter` occurs somewhere in who, what, where or how it went. */
export function matchesEntry(entry: AuditEntry, filter: string): boolean {
  const text = [entry.user, entry.action, entry.topic, entry.channel ?? '', entry.outcome, entry.remote_address]
    .concat(entry.results.flatMap((result) => [result.node, result.detail]))
    .join(' ')
    .toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** The audit log, newest first, read a page at a time. */
export class AuditStore {
  entries = $state.raw<AuditEntry[]>([]);
  status = $state<'loading' | 'ready' | 'failed'>('loading');
  error = $state('');
  complete = $state(false);

  constructor(readonly page = 100) {}

  async more(): Promise<void> {
    this.status = 'loading';
    try {
      const next = await audit(this.entries.at(-1)?.id ?? null, this.page);
      this.entries = [...this.entries, ...next];
      this.complete = next.length < this.page;
      this.status = 'ready';
    } catch (error) {
      this.error = messageOf(error);
      this.status = 'failed';
    }
  }
}
