/** The figures of one row or of the cluster within a window, for its charts: the platform's history, continued by what
 * this browser has received. */
import { messageOf } from '../api/client';
import { joined, within, type Columns } from '../history/columns';
import type { History, Metric } from '../history/history';
import type { Kept, LoadHistory, Scope } from '../history/load';
import { boundsOf, type Window } from '../history/window';

/** Steps of this length are continued by what the browser has received; longer ones are requested again. */
const FINEST_S = 10;
const RELOAD_S = 30;

export class HistoryStore {
  error = $state<string | null>(null);
  #kept = $state.raw<Kept | null>(null);
  /** When the history was requested last, by the clock of `show`. */
  #loadedAt = -Infinity;
  #loading = false;

  constructor(
    private readonly scope: Scope,
    private readonly metrics: readonly Metric[],
    private readonly window: Window,
    private readonly load: LoadHistory,
  ) {}

  /** Whether figures of the platform are shown; otherwise only what the browser has received. */
  get isLoaded(): boolean {
    return this.#kept !== null;
  }

  /** Whether there is an answer, or the reason why there is none. */
  get ready(): boolean {
    return this.#kept !== null || this.error !== null;
  }

  /** Columns of the metrics within the window, as of `now`. Requests what is not loaded yet. */
  columns(history: History, series: string, now: number): Columns {
    const live = history.columns(series, this.metrics);
    this.#renew(live, now);
    const isContinued = this.#kept === null || this.#kept.stepSeconds <= FINEST_S;
    const all = isContinued ? joined(this.#kept?.columns ?? null, live) : (this.#kept?.columns ?? live);
    return within(all, ...boundsOf(this.window, now));
  }

  #renew(live: Columns, now: number): void {
    if (this.#loading) return;
    const [from, to] = boundsOf(this.window, now);
    const isOpen = this.window.kind === 'last' || to > this.#loadedAt;
    const step = this.#kept?.stepSeconds ?? 0;
    const hasFailed = this.error !== null && now > this.#loadedAt + RELOAD_S;
    // Between the last request and what the browser still remembers, something is missing.
    const hasGap = step <= FINEST_S && (live[0][0] ?? now) > this.#loadedAt + FINEST_S && now > this.#loadedAt + RELOAD_S;
    const isOld = step > FINEST_S && now > this.#loadedAt + Math.max(step, RELOAD_S);
    if (this.#loadedAt === -Infinity || hasFailed || (isOpen && (hasGap || isOld))) void this.#open(from, now);
  }

  async #open(from: number, now: number): Promise<void> {
    this.#loading = true;
    this.#loadedAt = now;
    try {
      this.#kept = await this.load(this.scope, this.metrics, from, this.window.kind === 'last' ? null : this.window.to);
      this.error = null;
    } catch (error) {
      this.error = messageOf(error);
    } finally {
      this.#loading = false;
    }
  }
}
