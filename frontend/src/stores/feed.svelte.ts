import type { Clients, ClientRow, Run, ServerMessage } from '../api/types';
import type { Connect, Socket } from '../api/socket';
import { History } from './history';
import { applyDelta, fromSnapshot, type Picture } from './picture';

/** What the page may draw. Stale and paused keep the last picture; `empty` is connected, but the collector is silent. */
export type Feed =
  | { status: 'connecting'; attempts: number }
  | { status: 'empty' }
  | { status: 'live' | 'stale' | 'paused'; picture: Picture };

export const STALE_AFTER_MS = 3000;
const LONGEST_RETRY_MS = 10_000;

/** How long to wait before connection attempt `attempts`, doubling from half a second. */
export function retryDelayMs(attempts: number): number {
  return Math.min(LONGEST_RETRY_MS, 500 * 2 ** Math.min(attempts, 10));
}

/**
 * The live picture of the cluster: applies deltas, asks for a resync when one is missed, reconnects, notices silence.
 *
 * `history` is plain data that changes with `beat`: a component that draws from it reads `beat` as well.
 */
export class FeedStore {
  feed = $state.raw<Feed>({ status: 'connecting', attempts: 0 });
  beat = $state(0);
  /** Clients of the watched channel; null until the first answer. */
  clients = $state.raw<ClientRow[] | null>(null);
  readonly history: History;

  #connect: Connect;
  #socket: Socket | null = null;
  #picture: Picture | null = null;
  #paused = false;
  #resyncing = false;
  #attempts = 0;
  #watched: { topic: string; channel: string } | null = null;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #runListeners = new Set<(run: Run) => void>();
  #onLost: () => void;

  /** `onLost` is called at each failed or broken connection, so that the session can be looked at. */
  constructor(connect: Connect, { keep = 600, onLost = () => {} }: { keep?: number; onLost?: () => void } = {}) {
    this.#connect = connect;
    this.history = new History(keep);
    this.#onLost = onLost;
  }

  start(): void {
    if (this.#socket !== null) return;
    this.#socket = this.#connect({
      opened: () => {
        this.#attempts = 0;
        this.#hear();
        if (this.#watched) this.#socket?.send({ type: 'watch', ...this.#watched });
        if (this.#picture === null) this.feed = { status: 'empty' };
      },
      message: (message) => this.#take(message),
      closed: () => this.#lost(),
    });
  }

  stop(): void {
    clearTimeout(this.#silence);
    clearTimeout(this.#retry);
    this.#socket?.close();
    this.#socket = null;
    this.#picture = null;
    this.#paused = false;
    this.#attempts = 0;
    this.feed = { status: 'connecting', attempts: 0 };
  }

  /** Hold the picture still; the cluster is followed in the background. */
  pause(): void {
    if (this.feed.status !== 'live' && this.feed.status !== 'stale') return;
    this.#paused = true;
    this.feed = { status: 'paused', picture: this.feed.picture };
  }

  resume(): void {
    this.#paused = false;
    if (this.#picture) this.#show(this.#silence === undefined ? 'stale' : 'live');
  }

  watch(topic: string, channel: string): void {
    this.#watched = { topic, channel };
    this.clients = null;
    this.#socket?.send({ type: 'watch', topic, channel });
  }

  unwatch(): void {
    this.#watched = null;
    this.clients = null;
    this.#socket?.send({ type: 'unwatch' });
  }

  /** Call `listener` at every change of a report run; returns how to stop. */
  onRun(listener: (run: Run) => void): () => void {
    this.#runListeners.add(listener);
    return () => this.#runListeners.delete(listener);
  }

  #take(message: ServerMessage): void {
    switch (message.type) {
      case 'snapshot':
        this.#resyncing = false;
        this.#advance(fromSnapshot(message));
        break;
      case 'delta': {
        const next = this.#picture && applyDelta(this.#picture, message);
        if (next) this.#advance(next);
        else this.#resync();
        break;
      }
      case 'clients':
        this.#takeClients(message);
        break;
      case 'run':
        for (const listener of this.#runListeners) listener(message.run);
        break;
    }
  }

  #advance(picture: Picture): void {
    const repeated = this.#picture?.version === picture.version;
    this.#picture = picture;
    if (!repeated) this.history.record(picture);
    this.#hear();
    this.#show('live');
  }

  #resync(): void {
    if (this.#resyncing) return;
    this.#resyncing = true;
    this.#socket?.send({ type: 'resync' });
  }

  #takeClients(message: Clients): void {
    if (this.#paused) return;
    if (message.topic === this.#watched?.topic && message.channel === this.#watched.channel) {
      this.clients = message.clients;
    }
  }

  #show(status: 'live' | 'stale'): void {
    if (this.#paused || this.#picture === null) return;
    this.feed = { status, picture: this.#picture };
    this.beat += 1;
  }

  /** The picture was confirmed just now; it is stale when nothing follows. */
  #hear(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#silence = undefined;
      this.#resyncing = false; // an unanswered request may be made again
      this.#show('stale');
    }, STALE_AFTER_MS);
  }

  #lost(): void {
    this.#socket = null;
    this.#resyncing = false;
    this.#attempts += 1;
    if (this.#picture === null) this.feed = { status: 'connecting', attempts: this.#attempts };
    this.#onLost();
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.start(), retryDelayMs(this.#attempts - 1));
  }
}
