import { ApiError, messageOf } from '../api/client';
import type { Criteria } from '../api/criteria';
import { linesOf, readLine } from '../api/search';
import type { PeekedMessage, SearchMessage } from '../api/types';
import { withVisibleText } from '../api/visible';

type End = Extract<SearchMessage, { type: 'end' }>;
export type SearchCounts = Pick<End, 'searched' | 'total' | 'matching' | 'withheld'>;
export type SearchState =
  | { status: 'idle' }
  | { status: 'searching'; counts: SearchCounts | null }
  | { status: 'stopped'; counts: SearchCounts | null }
  | { status: 'ended'; end: End }
  | { status: 'failed'; error: unknown; message: string };

export type Ask = (criteria: Criteria, signal: AbortSignal) => Promise<ReadableStream<Uint8Array>>;

/** One search at a time: a new search and `stop` close the connection of the previous one. */
export class SearchStore {
  state = $state.raw<SearchState>({ status: 'idle' });
  messages = $state.raw<readonly PeekedMessage[]>([]);
  #ask: Ask;
  #running: AbortController | null = null;

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  async start(criteria: Criteria): Promise<void> {
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    this.messages = [];
    this.state = { status: 'searching', counts: null };
    try {
      const lines = await this.#ask(criteria, running.signal);
      for await (const line of linesOf(lines)) {
        if (running.signal.aborted) return;
        this.#read(line);
      }
      if (this.state.status === 'searching') throw new ApiError(0, 'The search ended early: the connection was closed.');
    } catch (error) {
      if (!running.signal.aborted) this.state = { status: 'failed', error, message: messageOf(error) };
    }
  }

  stop(): void {
    this.#running?.abort();
    if (this.state.status === 'searching') this.state = { status: 'stopped', counts: this.state.counts };
  }

  clear(): void {
    this.stop();
    this.messages = [];
    this.state = { status: 'idle' };
  }

  replace(found: PeekedMessage): void {
    this.messages = this.messages.map((each) => (each.id === found.id && each.node === found.node ? found : each));
  }

  /** Remove a message from the results, after an action on it. */
  remove(gone: Pick<PeekedMessage, 'id' | 'node'>): void {
    this.messages = this.messages.filter((each) => each.id !== gone.id || each.node !== gone.node);
  }

  #read(line: string): void {
    const message = readLine(line);
    if (message?.type === 'message') this.messages = [...this.messages, withVisibleText(message.message)];
    else if (message?.type === 'progress') this.state = { status: 'searching', counts: message };
    else if (message?.type === 'end') this.state = { status: 'ended', end: withVisibleText(message) };
  }
}
