/** New firing alerts, shown in a toast. Those of a few seconds share one toast. */
import type { Alert } from '../api/types';
import { isAttended } from '../alerts/alerts';
import { newsOf } from '../alerts/news';
import type { ToastStore } from './toasts.svelte';

export const GATHER_MS = 1200;
export const EVERY_MS = 10_000;

export class AlertNews {
  #toasts: Pick<ToastStore, 'show' | 'dismiss' | 'list'>;
  #waiting = new Map<number, Alert>();
  #shown: { toast: number; alerts: readonly Alert[] } | null = null;
  #last = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(toasts: Pick<ToastStore, 'show' | 'dismiss' | 'list'>) {
    this.#toasts = toasts;
  }

  began(alerts: readonly Alert[]): void {
    for (const alert of alerts) this.#waiting.set(alert.id, alert);
    this.#timer ??= setTimeout(() => this.#show(), Math.max(GATHER_MS, this.#last + EVERY_MS - Date.now()));
  }

  /** Remove resolved and attended alerts from the news. */
  settled(firing: ReadonlyMap<number, Alert>): void {
    const open = ({ id }: Alert): boolean => {
      const now = firing.get(id);
      return now !== undefined && !isAttended(now);
    };
    for (const alert of this.#waiting.values()) if (!open(alert)) this.#waiting.delete(alert.id);
    if (this.#shown === null) return;
    const left = this.#shown.alerts.filter(open);
    if (left.length === 0) {
      this.#toasts.dismiss(this.#shown.toast);
      this.#shown = null;
    } else this.#shown = { ...this.#shown, alerts: left };
  }

  #show(): void {
    this.#timer = undefined;
    if (this.#waiting.size === 0) return;
    const shown = this.#shown;
    const isShown = shown !== null && this.#toasts.list.some(({ id }) => id === shown.toast);
    const alerts = [...(isShown ? shown.alerts : []), ...this.#waiting.values()];
    if (isShown) this.#toasts.dismiss(shown.toast);
    this.#waiting.clear();
    this.#last = Date.now();
    const critical = alerts.some(({ severity }) => severity === 'critical');
    this.#shown = { alerts, toast: this.#toasts.show(newsOf(alerts), { tone: critical ? 'bad' : 'warn', href: '/alerts' }) };
  }
}
