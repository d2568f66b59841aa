import { act, messageOf } from '../api/client';
import type { ActionOutcome, ActionRequest } from '../api/types';

/** The state of an action's dialog, from the question to the outcome. */
export type Asked =
  | { step: 'closed' }
  | { step: 'asking'; request: ActionRequest; error: string | null }
  | { step: 'working'; request: ActionRequest }
  | { step: 'answered'; request: ActionRequest; answer: ActionOutcome };

/** Actions on topics and channels: confirmed first, then performed on every node that has them. */
export class ActionStore {
  asked = $state.raw<Asked>({ step: 'closed' });

  ask(request: ActionRequest): void {
    this.asked = { step: 'asking', request, error: null };
  }

  async confirm(): Promise<void> {
    if (this.asked.step !== 'asking') return;
    const { request } = this.asked;
    this.asked = { step: 'working', request };
    try {
      this.asked = { step: 'answered', request, answer: await act(request) };
    } catch (error) {
      this.asked = { step: 'asking', request, error: messageOf(error) };
    }
  }

  close(): void {
    this.asked = { step: 'closed' };
  }
}
