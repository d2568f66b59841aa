import { messageOf } from '../api/client';
import { repeated } from '../api/polling';
import type { ClientOrder, FoundClients } from '../api/types';

const AFTER_TYPING_MS = 200;
const AGAIN_MS = 5000;
/** Parsing 5,000 every five seconds made the page's longest tasks. The others are found by searching. */
const LISTED = 1000;
/** Of the first answer, which is shown while the others are requested. */
const FIRST_LISTED = 100;

export type ClientQuestion = { query: string; order: ClientOrder; descending: boolean };
export type AskClients = (question: ClientQuestion & { limit: number }) => Promise<FoundClients>;

/** The clients of the whole cluster, searched and ordered by the platform. Keeps the last answer during a request. */
export class ClientSearch {
  answer = $state.raw<FoundClients | null>(null);
  error = $state<string | null>(null);
  readonly #ask: AskClients;

  constructor(ask: AskClients) {
    this.#ask = ask;
  }

  /** Request the clients, repeatedly while `looking` returns true; returns a function that stops it. */
  follow(question: ClientQuestion, looking: () => boolean): () => void {
    const ask = async (stopped: () => boolean): Promise<void> => {
      if (!looking() && this.answer !== null) return;
      try {
        for (const limit of this.answer === null ? [FIRST_LISTED, LISTED] : [LISTED]) {
          const answer = await this.#ask({ ...question, limit });
          if (stopped()) return;
          this.answer = answer;
          this.error = null;
          if (answer.clients.length === answer.found) break;
        }
      } catch (error) {
        if (!stopped()) this.error = messageOf(error);
      }
    };
    return repeated(ask, AGAIN_MS, this.answer === null ? 0 : AFTER_TYPING_MS);
  }
}
