import { messageOf, pastAlerts, type AlertFilters } from '../api/client';
import type { Alert } from '../api/types';

/** Resolved alerts, newest first, read a page at a time; newly resolved ones are inserted in order. */
export class PastStore {
  alerts = $state.raw<Alert[]>([]);
  status = $state<'loading' | 'ready' | 'failed'>('loading');
  error = $state('');
  complete = $state(false);
  #filters: AlertFilters = { severity: '', subject: '' };
  #asked = 0;

  constructor(
    readonly page = 100,
    private readonly read = pastAlerts,
  ) {}

  /** Request the first page with other filters. The shown alerts stay until the answer arrives. */
  async show(filters: AlertFilters): Promise<void> {
    this.#filters = filters;
    await this.#take([], null);
  }

  async more(): Promise<void> {
    await this.#take(this.alerts, this.alerts.at(-1)?.id ?? null);
  }

  /** Request alerts that were resolved since. */
  async renew(): Promise<void> {
    if (this.status === 'ready') await this.#take(this.alerts, null);
  }

  async #take(known: readonly Alert[], before: number | null): Promise<void> {
    const turn = ++this.#asked; // outdated answers are not shown
    if (known.length === 0 || before !== null) this.status = 'loading';
    try {
      const next = await this.read(this.#filters, before, this.page);
      if (turn !== this.#asked) return;
      const all = new Map([...known, ...next].map((alert): [number, Alert] => [alert.id, alert]));
      this.alerts = [...all.values()].sort((a, b) => b.id - a.id);
      if (known.length === 0 || before !== null) this.complete = next.length < this.page;
      this.status = 'ready';
    } catch (error) {
      if (turn !== this.#asked) return;
      this.error = messageOf(error);
      this.status = 'failed';
    }
  }
}
