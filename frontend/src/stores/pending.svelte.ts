import type { PendingList } from '../api/types';

const AGAIN_MS = 3000;

/** What is beyond a threshold and does not fire yet, asked for again and again while somebody looks. */
export class PendingStore {
  answer = $state.raw<PendingList>({ total: 0, pending: [] });
  readonly #ask: () => Promise<PendingList>;

  constructor(ask: () => Promise<PendingList>) {
    this.#ask = ask;
  }

  /** Go on asking as long as `looking` says that somebody looks; returns how to stop. */
  follow(looking: () => boolean): () => void {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout>;
    const ask = async (): Promise<void> => {
      if (looking()) {
        try {
          const answer = await this.#ask();
          if (stopped) return;
          this.answer = answer;
        } catch {
          if (stopped) return;
          // When they would fire is not known; the page says by itself that the platform is away.
          this.answer = { total: 0, pending: [] };
        }
      }
      timer = setTimeout(() => void ask(), AGAIN_MS);
    };
    void ask();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }
}
