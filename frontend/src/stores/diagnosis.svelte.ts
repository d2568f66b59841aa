import { untrack } from 'svelte';
import { repeated } from '../api/polling';
import type { Diagnosis } from '../api/types';

const EVERY_MS = 5000;

/** The sentence about one channel, requested every few seconds while `isVisible` returns true. */
export class DiagnosisStore {
  diagnosis = $state.raw<Diagnosis | null>(null);

  constructor(
    private readonly ask: () => Promise<Diagnosis>,
    private readonly isVisible: () => boolean,
  ) {}

  /** Request it until the returned function is called. After a failure nothing is shown, because the last answer is old. */
  follow(): () => void {
    const request = async (stopped: () => boolean): Promise<void> => {
      if (!this.isVisible()) return;
      const answer = await this.ask().catch(() => null);
      if (!stopped()) this.diagnosis = answer;
    };
    return untrack(() => repeated(request, EVERY_MS));
  }
}
