import type { AlertsMessage, Clients, Job, RecentHistory, Run, ServerMessage, ViewOf, WatchedClient } from '../api/types';
import { retryDelayMs, type Connect, type Socket } from '../api/socket';
import { ClientRates } from '../clients/rates';
import { History } from '../history/history';
import { applyDelta, fromSnapshot, merged, type ClusterSnapshot } from '../snapshot/snapshot';

/**
 * The state that the page shows. `stale` and `paused` keep the last snapshot. `empty`: the page is connected, but has not
 * received a snapshot.
 */
export type Feed =
  | { status: 'connecting'; attempts: number }
  | { status: 'empty' }
  | { status: 'live' | 'stale' | 'paused'; snapshot: ClusterSnapshot };

/** Calls a function later. */
type Schedule = (work: () => void) => void;

/** Reads the last minutes of a view. */
export type LoadRecent = (view: ViewOf) => Promise<RecentHistory>;

export const STALE_AFTER_MS = 3000;

const isSame = (one: ViewOf, other: ViewOf): boolean => one.topic === other.topic && one.node === other.node;

/**
 * The live snapshot of the cluster: applies deltas, asks for a resync when one is missed, reconnects, and detects a silent collector.
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
  #frame: Schedule;
  #afterFrame: Schedule;
  #task: Schedule;
  /** Adds the last snapshot to the history, if that has not been done. */
  #recordPending: (() => void) | null = null;
  /** Adds the first snapshot to the history, once it is drawn. */
  #recordFirst: (() => void) | null = null;
  /** Messages that are not applied yet. Each is applied in a separate task, not in the one that parsed it, to keep tasks short. */
  #held: ServerMessage[] = [];
  #paused = false;
  #resyncing = false;
  #attempts = 0;
  #view: ViewOf = {};
  /** The view that the socket was opened with. */
  #openedView: ViewOf = {};
  /** Whether the rows outside of the view have been requested since the socket was opened. */
  #hasRest = false;
  /** View of the last whole snapshot; `#view` is the requested one. */
  #receivedView: ViewOf = {};
  #watched: { topic: string; channel: string } | null = null;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #runListeners = new Set<(run: Run) => void>();
  #jobListeners = new Set<(job: Job) => void>();
  #alertListeners = new Set<(message: AlertsMessage) => void>();
  #onLost: () => void;
  #onAccount: () => void;
  #loadRecent: LoadRecent | undefined;
  /** Whether the history lacks the time before the next whole snapshot. */
  #lacksRecent = true;

  /**
   * `onLost` is called at each failed or broken connection, and `onAccount` when the role of the user has changed, both
   * to check the session. `frame` schedules a drawing: messages
   * that arrive before it are applied and drawn together, so a slow or hidden page skips snapshots and never falls
   * behind. `afterFrame` schedules work that the first drawing does not need, and `task` schedules
   * work in a task of its own, if possible before the next drawing.
   */
  constructor(
    connect: Connect,
    {
      keep = 3600,
      onLost = () => {},
      onAccount = () => {},
      frame = (draw) => draw(),
      afterFrame = (work) => work(),
      task = (work) => work(),
      loadRecent,
    }: {
      keep?: number;
      onLost?: () => void;
      onAccount?: () => void;
      frame?: Schedule;
      afterFrame?: Schedule;
      task?: Schedule;
      loadRecent?: LoadRecent;
    } = {},
  ) {
    this.#loadRecent = loadRecent;
    this.#connect = connect;
    this.#frame = frame;
    this.#afterFrame = afterFrame;
    this.#task = task;
    this.history = new History(keep);
    this.#onLost = onLost;
    this.#onAccount = onAccount;
  }

  start(): void {
    if (this.#socket !== null) return;
    this.#openedView = this.#view;
    this.#hasRest = false;
    this.#socket = this.#connect(this.#view, {
      opened: () => {
        this.#attempts = 0;
        this.connected = true;
        this.#confirm();
        this.#lacksRecent = true;
        this.#receivedView = {};
        if (!isSame(this.#view, this.#openedView)) this.#socket?.send({ type: 'view', ...this.#view });
        if (this.#watched) this.#socket?.send({ type: 'watch', ...this.#watched });
        if (this.#snapshot === null) this.feed = { status: 'empty' };
      },
      message: (message) => {
        this.#held.push(message);
        this.#task(() => this.#takeNext());
      },
      closed: () => {
        for (let left = this.#held.length; left > 0; left -= 1) this.#takeNext();
        this.#lost();
      },
    });
  }

  stop(): void {
    clearTimeout(this.#silence);
    clearTimeout(this.#retry);
    this.#socket?.close();
    this.#socket = null;
    this.#snapshot = null;
    this.#recordFirst = null;
    this.#recordPending = null;
    this.#held = [];
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
    if (isSame(view, this.#view)) return;
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

  /** Call `listener` at every change of a job; returns a function that stops it. */
  onJob(listener: (job: Job) => void): () => void {
    this.#jobListeners.add(listener);
    return () => this.#jobListeners.delete(listener);
  }

  /** Call `listener` with each message about alerts; returns a function that stops it. */
  onAlerts(listener: (message: AlertsMessage) => void): () => void {
    this.#alertListeners.add(listener);
    return () => this.#alertListeners.delete(listener);
  }

  /** Apply the oldest message. Does nothing until the first snapshot is in the history, after which this is scheduled again. */
  #takeNext(): void {
    if (this.#recordFirst !== null) return;
    const message = this.#held.shift();
    if (message !== undefined) this.#take(message);
  }

  #take(message: ServerMessage): void {
    switch (message.type) {
      case 'snapshot':
        this.#resyncing = false;
        this.#receivedView = message.view;
        this.#advance(merged(this.#snapshot, fromSnapshot(message), message.view));
        // The snapshot of an earlier view may still come after a change.
        this.#afterFrame(() => {
          if (this.#lacksRecent && isSame(message.view, this.#view)) void this.#fill(message.view);
          this.#requestRest();
        });
        break;
      case 'rest':
        if (this.#snapshot === null || isSame(this.#receivedView, {})) break;
        this.#snapshot = merged(fromSnapshot(message), this.#snapshot, this.#receivedView);
        this.#show(this.#fresh);
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
      case 'account':
        this.#onAccount();
        break;
      case 'job':
        for (const listener of this.#jobListeners) listener(message.job);
        break;
      case 'alerts':
        for (const listener of this.#alertListeners) listener(message);
        break;
    }
  }

  #advance(snapshot: ClusterSnapshot): void {
    const [isFirst, repeated] = [this.#snapshot === null, this.#snapshot?.version === snapshot.version];
    this.#snapshot = snapshot;
    this.#confirm();
    if (isFirst) this.#drawFirst(snapshot, this.#receivedView);
    else {
      if (!repeated) this.#recordLater(snapshot, this.#receivedView);
      this.#show('live');
    }
  }

  /** Add a snapshot to the history in a task of its own, at the latest before the next drawing or the next snapshot. */
  #recordLater(snapshot: ClusterSnapshot, view: ViewOf): void {
    this.#recordPending?.();
    this.#recordPending = () => {
      this.#recordPending = null;
      this.history.record(snapshot, view);
    };
    this.#task(() => this.#recordPending?.());
  }

  /** Show the first rows before the history makes space for all of them. */
  #drawFirst(snapshot: ClusterSnapshot, view: ViewOf): void {
    this.#recordFirst = () => {
      this.#recordFirst = null;
      this.history.record(snapshot, view);
      this.#show(this.#fresh);
      for (let left = this.#held.length; left > 0; left -= 1) this.#task(() => this.#takeNext());
    };
    this.#show('live');
    this.#afterFrame(() => this.#recordFirst?.());
  }

  /** Add the last minutes. If they cannot be read, the history begins with the snapshots that this browser receives. */
  async #fill(view: ViewOf): Promise<void> {
    this.#lacksRecent = false;
    try {
      const recent = await this.#loadRecent?.(view);
      if (recent === undefined) return;
      this.#afterFrame(() => {
        this.#recordFirst?.();
        this.#recordPending?.();
        this.history.fill(recent.series, recent.step_s);
        this.#show(this.#fresh);
      });
    } catch {
      // Trends are known after some snapshots.
    }
  }

  /** Request the rows outside of the view, which other parts of the page name. */
  #requestRest(): void {
    if (!this.connected || this.#hasRest || isSame(this.#receivedView, {})) return;
    this.#hasRest = true;
    this.#socket?.send({ type: 'rest' });
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
    this.#recordPending?.();
    if (this.#paused) return;
    this.clients = this.#freshClients;
    if (this.#snapshot === null) return;
    this.feed = { status: this.#fresh, snapshot: this.#snapshot };
    this.updates += 1;
  }

  /** The snapshot was just confirmed; it becomes stale without further messages. */
  #confirm(): void {
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
