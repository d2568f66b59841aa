import { repeated } from '../api/polling';
import type { PendingList } from '../api/types';

const AGAIN_MS = 3000;

/** Pending alerts, requested repeatedly while the page is visible. */
export class PendingStore {
  answer = $state.raw<PendingList>({ total: 0, pending: [] });
  readonly #ask: () => Promise<PendingList>;

  constructor(ask: () => Promise<PendingList>) {
    this.#ask = ask;
  }

  /** Request repeatedly while `looking` returns true; returns a function that stops it. */
  follow(looking: () => boolean): () => void {
    return repeated(async (stopped) => {
      if (!looking()) return;
      // If it fails, the times are unknown. Other parts of the page show that the platform does not answer.
      const answer = await this.#ask().catch(() => ({ total: 0, pending: [] }));
      if (!stopped()) this.answer = answer;
    }, AGAIN_MS);
  }
}
