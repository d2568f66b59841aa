export type Toast = { id: number; tone: 'quiet' | 'ok' | 'warn' | 'bad'; text: string; href: string | null };

const SHOWN_MS = 6000;

/** Short messages at the page's edge. Errors stay until they are dismissed. */
export class ToastStore {
  list = $state.raw<readonly Toast[]>([]);
  #next = 1;

  /** `href` links to the subject. Returns the toast's id. */
  show(text: string, { tone = 'quiet', href = null }: { tone?: Toast['tone']; href?: string | null } = {}): number {
    const id = this.#next++;
    this.list = [...this.list.slice(-3), { id, tone, text, href }];
    if (tone !== 'bad') setTimeout(() => this.dismiss(id), SHOWN_MS);
    return id;
  }

  dismiss(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }

  /** Dismiss all: the next user must not see them. */
  forget(): void {
    this.list = [];
  }
}
