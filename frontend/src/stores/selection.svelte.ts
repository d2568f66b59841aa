import { SvelteSet } from 'svelte/reactivity';

/** Rows chosen to act on, by key; they stay chosen while numbers and order change. */
export class Selection {
  readonly keys = new SvelteSet<string>();
  #anchor: string | null = null;

  get size(): number {
    return this.keys.size;
  }

  toggle(key: string): void {
    this.#anchor = key;
    if (!this.keys.delete(key)) this.keys.add(key);
  }

  /** Choose all from the last one toggled to `key`, in the order given. */
  extend(order: readonly string[], key: string): void {
    const from = this.#anchor === null ? -1 : order.indexOf(this.#anchor);
    const to = order.indexOf(key);
    if (from < 0 || to < 0) return this.toggle(key);
    for (const between of order.slice(Math.min(from, to), Math.max(from, to) + 1)) this.keys.add(between);
    this.#anchor = key;
  }

  /** Choose all of these; or, where all are chosen already, none of them. */
  toggleAll(keys: readonly string[]): void {
    const all = keys.length > 0 && keys.every((key) => this.keys.has(key));
    for (const key of keys) {
      if (all) this.keys.delete(key);
      else this.keys.add(key);
    }
  }

  clear(): void {
    this.keys.clear();
    this.#anchor = null;
  }
}
