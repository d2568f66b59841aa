import type { AlertsMessage, Clients, ClientRow, Run, ServerMessage, ViewOf } from '../api/types';
import type { Connect, Socket } from '../api/socket';
import { History } from '../history/history';
import { applyDelta, fromSnapshot, merged, type ClusterSnapshot } from '../snapshot/snapshot';

/** What the page may draw. Stale and paused keep the last snapshot; `empty` is connected, but the collector is silent. */
export type Feed =
  | { status: 'connecting'; attempts: number }
  | { status: 'empty' }
  | { status: 'live' | 'stale' | 'paused'; snapshot: ClusterSnapshot };

export const STALE_AFTER_MS = 3000;
const LONGEST_RETRY_MS = 10_000;

/** Delay before connection attempt `attempts`, doubling from half a second. */
export function retryDelayMs(attempts: number): number {
  return Math.min(LONGEST_RETRY_MS, 500 * 2 ** Math.min(attempts, 10));
}

/**
 * The live snapshot of the cluster: applies deltas, asks for a resync when one is missed, reconnects, notices silence.
 *
 * `history` is plain data that changes with `beat`: a component that draws from it reads `beat` as well.
 */
export class FeedStore {
  feed = $state.raw<Feed>({ status: 'connecting', attempts: 0 });
  beat = $state(0);
  /** Clients of the watched channel; null until the first answer. */
  clients = $state.raw<ClientRow[] | null>(null);
  /** Whether the socket is open; a snapshot may be stale with it, when the collector is silent, or without it. */
  connected = $state(false);
  readonly history: History;

  #connect: Connect;
  #socket: Socket | null = null;
  #snapshot: ClusterSnapshot | null = null;
  #freshClients: ClientRow[] | null = null;
  #fresh: 'live' | 'stale' = 'live';
  #drawing = false;
  #frame: (draw: () => void) => void;
  #paused = false;
  #resyncing = false;
  #attempts = 0;
  #view: ViewOf = {};
  /** The view of what came last; it follows `#view` with the next whole snapshot. */
  #told: ViewOf = {};
  #watched: { topic: string; channel: string } | null = null;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #runListeners = new Set<(run: Run) => void>();
  #alertListeners = new Set<(message: AlertsMessage) => void>();
  #onLost: () => void;

  /**
   * `onLost` is called at each failed or broken connection, so that the session can be looked at. `frame` says when to
   * draw: what comes meanwhile is taken in and drawn together, so a page that is slow, or hidden, skips beats and never
   * falls behind.
   */
  constructor(
    connect: Connect,
    {
      keep = 3600,
      onLost = () => {},
      frame = (draw) => draw(),
    }: { keep?: number; onLost?: () => void; frame?: (draw: () => void) => void } = {},
  ) {
    this.#connect = connect;
    this.#frame = frame;
    this.history = new History(keep);
    this.#onLost = onLost;
  }

  start(): void {
    if (this.#socket !== null) return;
    this.#socket = this.#connect({
      opened: () => {
        this.#attempts = 0;
        this.connected = true;
        this.#hear();
        this.#told = {};
        if (this.#view.topic !== undefined || this.#view.node !== undefined) this.#socket?.send({ type: 'view', ...this.#view });
        if (this.#watched) this.#socket?.send({ type: 'watch', ...this.#watched });
        if (this.#snapshot === null) this.feed = { status: 'empty' };
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
    this.#snapshot = null;
    this.connected = false;
    this.#paused = false;
    this.#attempts = 0;
    this.feed = { status: 'connecting', attempts: 0 };
  }

  /** Try to connect now instead of waiting for the next attempt. */
  reconnect(): void {
    clearTimeout(this.#retry);
    this.start();
  }

  /** Pause the displayed snapshot; updates continue in the background. */
  pause(): void {
    if (this.feed.status !== 'live' && this.feed.status !== 'stale') return;
    this.#paused = true;
    this.feed = { status: 'paused', snapshot: this.feed.snapshot };
  }

  resume(): void {
    this.#paused = false;
    if (this.#snapshot) this.#show(this.#silence === undefined ? 'stale' : 'live');
  }

  /** Subscribe to one topic or one node, or to everything. Other rows keep their last state. */
  look(view: ViewOf): void {
    if (view.topic === this.#view.topic && view.node === this.#view.node) return;
    this.#view = view;
    this.#socket?.send({ type: 'view', ...view });
  }

  watch(topic: string, channel: string): void {
    this.#watched = { topic, channel };
    this.clients = this.#freshClients = null;
    this.#socket?.send({ type: 'watch', topic, channel });
  }

  unwatch(): void {
    this.#watched = null;
    this.clients = this.#freshClients = null;
    this.#socket?.send({ type: 'unwatch' });
  }

  /** Call `listener` at every change of a report run; returns a function that stops it. */
  onRun(listener: (run: Run) => void): () => void {
    this.#runListeners.add(listener);
    return () => this.#runListeners.delete(listener);
  }

  /** Call `listener` with each message about alerts; returns a function that stops it. */
  onAlerts(listener: (message: AlertsMessage) => void): () => void {
    this.#alertListeners.add(listener);
    return () => this.#alertListeners.delete(listener);
  }

  #take(message: ServerMessage): void {
    switch (message.type) {
      case 'snapshot':
        this.#resyncing = false;
        this.#told = message.view;
        this.#advance(merged(this.#snapshot, fromSnapshot(message), message.view));
        break;
      case 'delta': {
        const next = this.#snapshot && applyDelta(this.#snapshot, message);
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
      case 'alerts':
        for (const listener of this.#alertListeners) listener(message);
        break;
    }
  }

  #advance(snapshot: ClusterSnapshot): void {
    const repeated = this.#snapshot?.version === snapshot.version;
    this.#snapshot = snapshot;
    if (!repeated) this.history.record(snapshot, this.#told);
    this.#hear();
    this.#show('live');
  }

  #resync(): void {
    if (this.#resyncing) return;
    this.#resyncing = true;
    this.#socket?.send({ type: 'resync' });
  }

  #takeClients(message: Clients): void {
    if (message.topic !== this.#watched?.topic || message.channel !== this.#watched.channel) return;
    this.#freshClients = message.clients;
    this.#show(this.#fresh);
  }

  #show(status: 'live' | 'stale'): void {
    this.#fresh = status;
    if (this.#drawing) return;
    this.#drawing = true;
    this.#frame(() => {
      this.#drawing = false;
      this.#draw();
    });
  }

  #draw(): void {
    if (this.#paused) return;
    this.clients = this.#freshClients;
    if (this.#snapshot === null) return;
    this.feed = { status: this.#fresh, snapshot: this.#snapshot };
    this.beat += 1;
  }

  /** The snapshot was confirmed just now; it is stale when nothing follows. */
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
    this.connected = false;
    this.#resyncing = false;
    this.#attempts += 1;
    if (this.#snapshot === null) this.feed = { status: 'connecting', attempts: this.#attempts };
    this.#onLost();
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.start(), retryDelayMs(this.#attempts - 1));
  }
}
