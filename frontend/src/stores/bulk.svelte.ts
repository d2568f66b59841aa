import { messageOf } from '../api/client';
import type { BulkAction, BulkTarget, TargetOutcome } from '../api/types';

/** The dialog for an action on many topics or channels, from the question to the outcomes. */
export type BulkAsked =
  | { step: 'closed' }
  | { step: 'asking'; action: BulkAction; targets: readonly BulkTarget[] }
  | { step: 'working'; action: BulkAction; targets: readonly BulkTarget[]; outcomes: readonly TargetOutcome[]; stopping: boolean }
  | { step: 'answered'; action: BulkAction; targets: readonly BulkTarget[]; outcomes: readonly TargetOutcome[]; error: string | null };

export type Act = (action: BulkAction, targets: readonly BulkTarget[]) => Promise<TargetOutcome[]>;

/** Targets in one request: few, so that progress is visible and stopping leaves the rest unchanged. */
export const AT_A_TIME = 10;

export class BulkStore {
  asked = $state.raw<BulkAsked>({ step: 'closed' });
  readonly #act: Act;

  constructor(act: Act) {
    this.#act = act;
  }

  ask(action: BulkAction, targets: readonly BulkTarget[]): void {
    if (targets.length > 0) this.asked = { step: 'asking', action, targets };
  }

  /** Perform the action, a few targets at a time. An error ends it, and the remaining targets are not changed. */
  async confirm(): Promise<void> {
    if (this.asked.step !== 'asking') return;
    const { action, targets } = this.asked;
    let outcomes: readonly TargetOutcome[] = [];
    let error: string | null = null;
    this.asked = { step: 'working', action, targets, outcomes, stopping: false };
    for (let at = 0; at < targets.length && !this.#stopping; at += AT_A_TIME) {
      try {
        outcomes = [...outcomes, ...(await this.#act(action, targets.slice(at, at + AT_A_TIME)))];
      } catch (caught) {
        error = messageOf(caught);
        break;
      }
      if (this.asked.step === 'working') this.asked = { ...this.asked, outcomes };
    }
    this.asked = { step: 'answered', action, targets, outcomes, error };
  }

  /** Send no further requests; the current one finishes. */
  stop(): void {
    if (this.asked.step === 'working') this.asked = { ...this.asked, stopping: true };
  }

  close(): void {
    if (this.asked.step !== 'working') this.asked = { step: 'closed' };
  }

  get #stopping(): boolean {
    return this.asked.step === 'working' && this.asked.stopping;
  }
}
