/** The last hour of one row, for its charts: what the platform kept, and after it what this browser has seen. */
import { messageOf } from '../api/client';
import { joined, since, type Columns } from '../history/columns';
import type { History, Metric } from '../history/history';

export type Scope =
  | { scope: 'topic'; topic: string }
  | { scope: 'channel'; topic: string; channel: string }
  | { scope: 'node'; node: string };
/** Resolves to null where nothing older than the browser's own beats is kept. */
export type LoadHour = (scope: Scope, metrics: readonly Metric[]) => Promise<Columns | null>;

export const HOUR_S = 3600;

export class HourStore {
  error = $state<string | null>(null);
  #past = $state.raw<Columns | null>(null);
  readonly #metrics: readonly Metric[];

  constructor(
    scope: Scope,
    metrics: readonly Metric[],
    private readonly load: LoadHour,
  ) {
    this.#metrics = metrics;
    void this.#open(scope);
  }

  /** Columns of the metrics given at the start, over the last `seconds`. */
  columns(history: History, series: string, seconds = HOUR_S): Columns {
    return since(joined(this.#past, history.columns(series, this.#metrics)), seconds);
  }

  async #open(scope: Scope): Promise<void> {
    try {
      this.#past = await this.load(scope, this.#metrics);
    } catch (error) {
      this.error = messageOf(error);
    }
  }
}
