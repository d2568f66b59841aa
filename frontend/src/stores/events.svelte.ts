import { untrack } from 'svelte';
import { repeated } from '../api/polling';
import type { ClusterEvent, EventScope } from '../api/types';
import { boundsOf, type Window } from '../history/window';

const EVERY_MS = 10_000;

/** The events of the charts' window, requested every few seconds while `isVisible` returns true. */
export class EventStore {
  events = $state.raw<readonly ClusterEvent[]>([]);

  constructor(
    private readonly ask: (of: EventScope) => Promise<ClusterEvent[]>,
    private readonly isVisible: () => boolean,
  ) {}

  /** Request the events of a window until the returned function is called. A failure keeps the last answer. */
  follow(of: EventScope, window: Window): () => void {
    let isComplete = false;
    this.events = [];
    const request = async (stopped: () => boolean): Promise<void> => {
      if (isComplete || !this.isVisible()) return;
      const now = Date.now();
      const [since, until] = boundsOf(window, now / 1000).map((at) => Math.round(at * 1000)) as [number, number];
      const answer = await this.ask({ ...of, since, ...(window.kind === 'between' ? { until } : {}) }).catch(() => null);
      if (stopped() || answer === null) return;
      this.events = answer;
      isComplete = until < now; // the window is over
    };
    return untrack(() => repeated(request, EVERY_MS));
  }
}
