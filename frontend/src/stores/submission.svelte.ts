import { messageOf } from '../api/client';
import type { ToastStore } from './toasts.svelte';

/**
 * The requests of a form or dialog, one at a time. An answer that arrives after it was closed, or opened for something
 * else, changes nothing in it, and a failure is shown at the edge of the page.
 *
 * To be created while a component is initialized.
 */
export class Submission {
  working = $state(false);
  readonly #toasts: Pick<ToastStore, 'show'>;
  #opening = 0;

  /** `subject` returns what the dialog is open for. Without it, the dialog is open while its component is mounted. */
  constructor(toasts: Pick<ToastStore, 'show'>, subject: () => unknown = () => null) {
    this.#toasts = toasts;
    $effect(() => {
      subject();
      return () => {
        this.#opening += 1;
        this.working = false;
      };
    });
  }

  /** Returns a function that tells whether the dialog is still open for what it is open for now. */
  stay(): () => boolean {
    const opening = this.#opening;
    return () => opening === this.#opening;
  }

  /**
   * Ask, then call `done` with the answer, or `failed`; `late` with an answer that comes too late for `done`. Ignored
   * during another request of the same opening.
   */
  async send<T>(ask: () => Promise<T>, done: (answer: T) => void, failed: (error: unknown) => void, late: (answer: T) => void = () => {}): Promise<void> {
    if (this.working) return;
    const isHere = this.stay();
    this.working = true;
    try {
      const answer = await ask();
      if (isHere()) done(answer);
      else late(answer);
    } catch (error) {
      if (isHere()) failed(error);
      else this.#toasts.show(messageOf(error), { tone: 'bad' });
    } finally {
      if (isHere()) this.working = false;
    }
  }
}
