/** The elements that a long table draws its rows into. */

export type RowKey = string | number;

/**
 * Numbers the elements of the visible rows. While a table is scrolled, elements of rows that left show the rows that
 * came: to change an element takes a fraction of the time of a new one. Each row keeps its element as long as it is
 * visible.
 */
export class Slots {
  #slots = new Map<RowKey, number>();
  #next = 0;

  /**
   * Assign an element to each of `keys`. With `reuse`, new rows are given elements of rows that left, except for that of
   * `focused`: keyboard input must not act on another row.
   */
  assign(keys: readonly RowKey[], { reuse, focused }: { reuse: boolean; focused: RowKey | null }): void {
    const before = this.#slots;
    const slots = new Map<RowKey, number>();
    for (const key of keys) {
      const kept = before.get(key);
      if (kept !== undefined) slots.set(key, kept);
    }
    const free = reuse ? [...before].filter(([key]) => !slots.has(key) && key !== focused).map(([, slot]) => slot) : [];
    for (const key of keys) if (!slots.has(key)) slots.set(key, free.pop() ?? this.#next++);
    this.#slots = slots;
  }

  /** The element of a row that was assigned one. */
  of(key: RowKey): number {
    return this.#slots.get(key) ?? -1;
  }
}
