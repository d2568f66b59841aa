/** Ordering, searching and windowing of up to fifty thousand rows, once a second. */

export type SortKey = string | number | boolean | null;
export type Sort = { column: string; descending: boolean };

const LARGEST_CACHE = 200_000;
const natural = new Map<string, string>();

/** A key that sorts names naturally when compared as text: `node-2` before `node-10`, ignoring case. */
export function naturalKey(text: string): string {
  let key = natural.get(text);
  if (key === undefined) {
    if (natural.size >= LARGEST_CACHE) natural.clear();
    key = text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, '0'));
    natural.set(text, key);
  }
  return key;
}

type Keyed<Row> = { row: Row; key: string | number | null };

function compare<Row>(a: Keyed<Row>, b: Keyed<Row>, sign: number): number {
  if (a.key === null || b.key === null) return Number(a.key === null) - Number(b.key === null);
  return a.key === b.key ? 0 : sign * (a.key < b.key ? -1 : 1);
}

/** `rows` by `key`; unknown values come last in both orders, and equal rows keep their order. */
export function sortRows<Row>(rows: readonly Row[], key: (row: Row) => SortKey, descending: boolean): Row[] {
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row): Keyed<Row> => {
    const value = key(row);
    return { row, key: typeof value === 'string' ? naturalKey(value) : typeof value === 'boolean' ? Number(value) : value };
  });
  return keyed.sort((a, b) => compare(a, b, sign)).map(({ row }) => row);
}

/**
 * The order of a table whose numbers change each second. Equal rows never swap places between snapshots. Sorting starts
 * from the last order, which is nearly right and so fast. `hold` keeps the last order while the pointer is over the
 * rows, with new rows at the end.
 */
export class StableOrder<Row> {
  #last: (string | number)[] = [];
  #by = '';

  /** `by` names the requested order; a new name applies even with `hold`. */
  apply(
    rows: readonly Row[],
    rowKey: (row: Row) => string | number,
    { by, sort, descending = false, hold }: { by: string; sort?: ((row: Row) => SortKey) | undefined; descending?: boolean; hold: boolean },
  ): readonly Row[] {
    if (!sort) return rows;
    const start = this.#from(rows, rowKey);
    const ordered = hold && by === this.#by ? start : sortRows(start, sort, descending);
    this.#by = by;
    this.#last = ordered.map(rowKey);
    return ordered;
  }

  #from(rows: readonly Row[], rowKey: (row: Row) => string | number): Row[] {
    if (this.#last.length === 0) return [...rows];
    const byKey = new Map(rows.map((row) => [rowKey(row), row]));
    const kept: Row[] = [];
    for (const key of this.#last) {
      const row = byKey.get(key);
      if (row === undefined) continue;
      kept.push(row);
      byKey.delete(key);
    }
    return kept.concat([...byKey.values()]);
  }
}

/** A test for texts in which every word of `query` occurs, in any order and case. */
export function wordsTest(query: string): (text: string) => boolean {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return (text) => {
    if (words.length === 0) return true;
    const lower = text.toLowerCase();
    return words.every((word) => lower.includes(word));
  };
}

/**
 * The rows of a long table to render: `[first, end)` around the viewport, with `margin` more rows on both sides. `top`
 * is the position of the first row, relative to the viewport's top.
 */
export function visibleRange(
  { top, viewport, rowHeight, total }: { top: number; viewport: number; rowHeight: number; total: number },
  margin = 5,
): [number, number] {
  const first = Math.floor(-top / rowHeight) - margin;
  const end = Math.ceil((viewport - top) / rowHeight) + margin;
  return [Math.max(0, Math.min(first, total)), Math.max(0, Math.min(end, total))];
}
