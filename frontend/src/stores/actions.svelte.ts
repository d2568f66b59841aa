import { act, messageOf } from '../api/client';
import type { ActionOutcome, ActionRequest } from '../api/types';

/** The state of an action's dialog, from the question to the outcome. */
export type Asked =
  | { step: 'closed' }
  | { step: 'asking'; request: ActionRequest; error: string | null }
  | { step: 'working'; request: ActionRequest }
  | { step: 'answered'; request: ActionRequest; answer: ActionOutcome };

/** An outcome that the dialog does not show, because it was closed or opened for something else during the request. */
export type Late = { request: ActionRequest; answer: ActionOutcome } | { request: ActionRequest; error: string };

/** Actions on topics and channels: confirmed first, then performed on every node that has them. */
export class ActionStore {
  asked = $state.raw<Asked>({ step: 'closed' });

  ask(request: ActionRequest): void {
    this.asked = { step: 'asking', request, error: null };
  }

  /** Perform the action; the dialog shows its outcome. Returns the outcome if the dialog was left meanwhile. */
  async confirm(): Promise<Late | null> {
    if (this.asked.step !== 'asking') return null;
    const { request } = this.asked;
    const working: Asked = { step: 'working', request };
    this.asked = working;
    try {
      const answer = await act(request);
      if (this.asked !== working) return { request, answer };
      this.asked = { step: 'answered', request, answer };
    } catch (error) {
      if (this.asked !== working) return { request, error: messageOf(error) };
      this.asked = { step: 'asking', request, error: messageOf(error) };
    }
    return null;
  }

  close(): void {
    this.asked = { step: 'closed' };
  }
}
