import { messageOf } from '../api/client';
import type { BulkAction, BulkTarget } from '../api/types';

/** The dialog for an action on many topics or channels, until the platform has taken the job. */
export type BulkAsked =
  | { step: 'closed' }
  | { step: 'asking' | 'working'; action: BulkAction; targets: readonly BulkTarget[]; error: string | null };

export class BulkStore {
  asked = $state.raw<BulkAsked>({ step: 'closed' });
  readonly #start: (action: BulkAction, targets: readonly BulkTarget[]) => Promise<void>;

  constructor(start: (action: BulkAction, targets: readonly BulkTarget[]) => Promise<void>) {
    this.#start = start;
  }

  ask(action: BulkAction, targets: readonly BulkTarget[]): void {
    if (targets.length > 0) this.asked = { step: 'asking', action, targets, error: null };
  }

  /**
   * Start the job. The dialog closes, or shows why it was refused. Rejects with the refusal if the dialog was closed
   * meanwhile, or opened for something else.
   */
  async confirm(): Promise<void> {
    if (this.asked.step !== 'asking') return;
    const { action, targets } = this.asked;
    const working: BulkAsked = { step: 'working', action, targets, error: null };
    this.asked = working;
    try {
      await this.#start(action, targets);
      if (this.asked === working) this.asked = { step: 'closed' };
    } catch (error) {
      if (this.asked !== working) throw error;
      this.asked = { step: 'asking', action, targets, error: messageOf(error) };
    }
  }

  close(): void {
    this.asked = { step: 'closed' };
  }
}
