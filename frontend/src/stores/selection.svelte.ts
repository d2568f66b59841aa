import { SvelteSet } from 'svelte/reactivity';

/** Selected rows, by key; they stay selected while numbers and order change. */
export class Selection {
  readonly keys = new SvelteSet<string>();
  /** Why a row cannot be selected; empty if it can. */
  readonly refusal: (key: string) => string;
  #anchor: string | null = null;

  constructor(refusal: (key: string) => string = () => '') {
    this.refusal = refusal;
  }

  get size(): number {
    return this.keys.size;
  }

  toggle(key: string): void {
    this.#anchor = key;
    if (!this.keys.delete(key)) this.#add(key);
  }

  /** Select all rows from the last toggled one to `key`, in the given order. */
  extend(order: readonly string[], key: string): void {
    const from = this.#anchor === null ? -1 : order.indexOf(this.#anchor);
    const to = order.indexOf(key);
    if (from < 0 || to < 0) return this.toggle(key);
    for (const between of order.slice(Math.min(from, to), Math.max(from, to) + 1)) this.#add(between);
    this.#anchor = key;
  }

  /** Select all of these that can be selected, or none if they are already. */
  toggleAll(given: readonly string[]): void {
    const keys = given.filter((key) => this.refusal(key) === '');
    const all = keys.length > 0 && keys.every((key) => this.keys.has(key));
    for (const key of keys) {
      if (all) this.keys.delete(key);
      else this.keys.add(key);
    }
  }

  #add(key: string): void {
    if (this.refusal(key) === '') this.keys.add(key);
  }

  clear(): void {
    this.keys.clear();
    this.#anchor = null;
  }
}
