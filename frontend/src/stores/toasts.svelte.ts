export type Toast = { id: number; tone: 'quiet' | 'ok' | 'warn' | 'bad'; text: string; href: string | null };

const SHOWN_MS = 6000;

/** Short news at the page's edge. What went wrong stays until it is put away. */
export class ToastStore {
  list = $state.raw<readonly Toast[]>([]);
  #next = 1;

  /** `href` leads to what the text is about. Returns the toast's id. */
  show(text: string, { tone = 'quiet', href = null }: { tone?: Toast['tone']; href?: string | null } = {}): number {
    const id = this.#next++;
    this.list = [...this.list.slice(-3), { id, tone, text, href }];
    if (tone !== 'bad') setTimeout(() => this.dismiss(id), SHOWN_MS);
    return id;
  }

  dismiss(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}
