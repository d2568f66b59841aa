import type { AlertsMessage, Clients, RecentHistory, Run, ServerMessage, ViewOf, WatchedClient } from '../api/types';
import type { Connect, Socket } from '../api/socket';
import { ClientRates } from '../clients/rates';
import { History } from '../history/history';
import { applyDelta, fromSnapshot, merged, type ClusterSnapshot } from '../snapshot/snapshot';

/**
 * The state that the page shows. Stale and paused keep the last snapshot; `empty` is connected, but the collector is
 * silent.
 */
export type Feed =
  | { status: 'connecting'; attempts: number }
  | { status: 'empty' }
  | { status: 'live' | 'stale' | 'paused'; snapshot: ClusterSnapshot };

/** Reads the last minutes of a view. */
export type LoadRecent = (view: ViewOf) => Promise<RecentHistory>;

export const STALE_AFTER_MS = 3000;
const LONGEST_RETRY_MS = 10_000;

/** Delay before connection attempt `attempts`, doubling from half a second. */
export function retryDelayMs(attempts: number): number {
  return Math.min(LONGEST_RETRY_MS, 500 * 2 ** Math.min(attempts, 10));
}

/**
 * The live snapshot of the cluster: applies deltas, asks for a resync when one is missed, reconnects, notices silence.
 *
 * `history` is plain data, not reactive state: a component that draws from it also reads `updates`.
 */
export class FeedStore {
  feed = $state.raw<Feed>({ status: 'connecting', attempts: 0 });
  /** Number of times that `feed` or `history` changed. */
  updates = $state(0);
  /** Clients of the watched channel; null until the first answer. */
  clients = $state.raw<WatchedClient[] | null>(null);
  /** Whether the socket is open. A snapshot can be stale although it is open, if the collector is silent. */
  connected = $state(false);
  readonly history: History;
  /** Rates of the watched channel's clients; changes with `updates`, as `history` does. */
  clientRates = new ClientRates();

  #connect: Connect;
  #socket: Socket | null = null;
  #snapshot: ClusterSnapshot | null = null;
  #freshClients: WatchedClient[] | null = null;
  #fresh: 'live' | 'stale' = 'live';
  #drawing = false;
  #frame: (draw: () => void) => void;
  #paused = false;
  #resyncing = false;
  #attempts = 0;
  #view: ViewOf = {};
  /** View of the last whole snapshot; `#view` is the requested one. */
  #receivedView: ViewOf = {};
  #watched: { topic: string; channel: string } | null = null;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #runListeners = new Set<(run: Run) => void>();
  #alertListeners = new Set<(message: AlertsMessage) => void>();
  #onLost: () => void;
  #loadRecent: LoadRecent | undefined;
  /** Whether the history lacks the time before the next whole snapshot. */
  #lacksRecent = true;

  /**
   * `onLost` is called at each failed or broken connection, to check the session. `frame` schedules a drawing: messages
   * that arrive before it are applied and drawn together, so a slow or hidden page skips snapshots and never falls
   * behind.
   */
  constructor(
    connect: Connect,
    {
      keep = 3600,
      onLost = () => {},
      frame = (draw) => draw(),
      loadRecent,
    }: { keep?: number; onLost?: () => void; frame?: (draw: () => void) => void; loadRecent?: LoadRecent } = {},
  ) {
    this.#loadRecent = loadRecent;
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
        this.#lacksRecent = true;
        this.#receivedView = {};
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
    this.#lacksRecent = true;
    this.#socket?.send({ type: 'view', ...view });
  }

  /** Request the whole view again: the shares of single nodes are not kept up to date while it is everything. */
  refresh(): void {
    this.#resync();
  }

  watch(topic: string, channel: string): void {
    this.#watched = { topic, channel };
    this.clients = this.#freshClients = null;
    this.clientRates = new ClientRates();
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
        this.#receivedView = message.view;
        this.#advance(merged(this.#snapshot, fromSnapshot(message), message.view));
        // The snapshot of an earlier view may still come after a change.
        if (this.#lacksRecent && message.view.topic === this.#view.topic && message.view.node === this.#view.node) void this.#fill(message.view);
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
    if (!repeated) this.history.record(snapshot, this.#receivedView);
    this.#hear();
    this.#show('live');
  }

  /** Take in the last minutes; without them, the history begins with this browser's own. */
  async #fill(view: ViewOf): Promise<void> {
    this.#lacksRecent = false;
    try {
      const recent = await this.#loadRecent?.(view);
      if (recent === undefined) return;
      this.history.fill(recent.series, recent.step_s);
      this.#show(this.#fresh);
    } catch {
      // Trends are then known after some snapshots.
    }
  }

  #resync(): void {
    if (this.#resyncing) return;
    this.#resyncing = true;
    this.#socket?.send({ type: 'resync' });
  }

  #takeClients(message: Clients): void {
    if (message.topic !== this.#watched?.topic || message.channel !== this.#watched.channel) return;
    this.#freshClients = message.clients;
    this.clientRates.record(message.clients);
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
    this.updates += 1;
  }

  /** The snapshot was just confirmed; it becomes stale without further messages. */
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
