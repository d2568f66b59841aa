import { messageOf } from '../api/client';
import type { ClientOrder, FoundClients } from '../api/types';

const AFTER_TYPING_MS = 200;
const AGAIN_MS = 5000;
const LISTED = 5000;

export type ClientQuestion = { query: string; order: ClientOrder; descending: boolean };
export type AskClients = (question: ClientQuestion & { limit: number }) => Promise<FoundClients>;

/** The clients of the whole cluster, searched and ordered by the platform. Keeps the last answer while it asks. */
export class ClientSearch {
  answer = $state.raw<FoundClients | null>(null);
  error = $state<string | null>(null);
  readonly #ask: AskClients;

  constructor(ask: AskClients) {
    this.#ask = ask;
  }

  /** Ask, and go on asking as long as `looking` says that somebody looks; returns how to stop. */
  follow(question: ClientQuestion, looking: () => boolean): () => void {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout>;
    const ask = async (): Promise<void> => {
      if (looking() || this.answer === null) {
        try {
          const answer = await this.#ask({ ...question, limit: LISTED });
          if (stopped) return;
          this.answer = answer;
          this.error = null;
        } catch (error) {
          if (stopped) return;
          this.error = messageOf(error);
        }
      }
      timer = setTimeout(() => void ask(), AGAIN_MS);
    };
    timer = setTimeout(() => void ask(), this.answer === null ? 0 : AFTER_TYPING_MS);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }
}
