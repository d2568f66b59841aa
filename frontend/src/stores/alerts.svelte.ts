import { messageOf } from '../api/client';
import type { Alert, AlertCounts, AlertList, AlertsMessage } from '../api/types';
import { isAttended, marksOf, type Marks } from '../alerts/alerts';

/** `began` is called with new firing alerts, `settled` with all firing alerts after each change. */
export type AlertListener = { began(alerts: readonly Alert[]): void; settled(firing: ReadonlyMap<number, Alert>): void };

/**
 * The firing alerts, on every page: read once, then updated by messages of the websocket. All are read again after a
 * message whose version does not follow the current one, and after a change that names no alert, such as a silence.
 */
export class AlertStore {
  status = $state<'loading' | 'ready' | 'failed'>('loading');
  error = $state('');
  firing = $state.raw<ReadonlyMap<number, Alert>>(new Map());
  /** Numbers of all firing alerts; null until they are known. */
  counts = $state.raw<AlertCounts | null>(null);
  /** Increases with every change of alerts, rules, silences and notifiers. */
  version = $state(0);
  readonly marks: Marks = $derived(marksOf(this.firing.values()));

  #read: () => Promise<AlertList>;
  #listener: AlertListener | null;
  #newestVersion = 0;
  #reading = false;
  /** Whether to request once more: in any case, or if a newer version has been announced. */
  #again: 'no' | 'if newer' | 'yes' = 'no';
  #era = 0;

  constructor(read: () => Promise<AlertList>, listener: AlertListener | null = null) {
    this.#read = read;
    this.#listener = listener;
  }

  take(message: AlertsMessage): void {
    this.#newestVersion = message.version;
    const step = message.version - this.version;
    if (this.#reading) {
      if (this.#again === 'no') this.#again = 'if newer';
      return;
    }
    if (this.status !== 'ready' || (step !== 0 && step !== 1) || (step === 1 && message.alerts.length === 0)) {
      void this.refresh();
      return;
    }
    this.counts = message.counts;
    this.version = message.version;
    if (step === 1) this.put(message.alerts);
  }

  /** Replace alerts by their current state; resolved ones are removed. */
  put(alerts: readonly Alert[]): void {
    const next = new Map(this.firing);
    for (const alert of alerts) {
      if (alert.state === 'firing') next.set(alert.id, alert);
      else next.delete(alert.id);
    }
    this.#show(next);
  }

  /**
   * Make a change of alerts, and show what it returns. If there was other news meanwhile, all alerts are requested, because
   * the answer may be older.
   */
  async change(change: () => Promise<readonly Alert[]>): Promise<void> {
    const { version } = this;
    const changed = await change();
    if (this.#reading || this.version !== version) void this.refresh();
    else this.put(changed);
  }

  /** Request all firing alerts; once more after a call during the request, or a message with a newer version. */
  async refresh(): Promise<void> {
    if (this.#reading) return void (this.#again = 'yes');
    this.#reading = true;
    const era = this.#era;
    try {
      do {
        this.#again = 'no';
        const answer = await this.#read();
        if (era !== this.#era) return;
        const next = new Map(answer.alerts.map((alert): [number, Alert] => [alert.id, alert]));
        const first = this.status !== 'ready';
        this.counts = answer.counts;
        this.version = answer.version;
        this.status = 'ready';
        this.#show(next, first);
      } while (this.#isNeededAgain());
    } catch (error) {
      if (era !== this.#era) return;
      this.error = messageOf(error);
      // The shown alerts stay; the next message requests all again.
      if (this.status === 'loading') this.status = 'failed';
      else this.version = -1;
    } finally {
      if (era === this.#era) this.#reading = false;
    }
  }

  #isNeededAgain(): boolean {
    return this.#again === 'yes' || (this.#again === 'if newer' && this.#newestVersion > this.version);
  }

  /** Forget everything, after signing out. */
  forget(): void {
    this.#era += 1;
    this.#reading = false;
    this.status = 'loading';
    this.firing = new Map();
    this.counts = null;
    this.version = this.#newestVersion = 0;
    this.#listener?.settled(this.firing);
  }

  #show(next: ReadonlyMap<number, Alert>, first = false): void {
    const began = first ? [] : [...next.values()].filter((alert) => !this.firing.has(alert.id) && !isAttended(alert));
    this.firing = next;
    if (began.length > 0) this.#listener?.began(began);
    this.#listener?.settled(next);
  }
}
