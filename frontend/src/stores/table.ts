/** Sorting, searching and windowing of rows. */

export type SortKey = string | number | boolean | null;
export type Sort = { column: string; descending: boolean };

/** `rows` by `key`; what is not known comes last either way, and equals keep their order. */
export function sortRows<Row>(rows: readonly Row[], key: (row: Row) => SortKey, descending: boolean): Row[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = key(a);
    const y = key(b);
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    if (typeof x === 'string' && typeof y === 'string') return sign * x.localeCompare(y, 'en', { numeric: true });
    return sign * (Number(x) - Number(y));
  });
}

/** Whether every word of `query` occurs in `text`, in any order and case. */
export function matchesWords(text: string, query: string): boolean {
  const lower = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}

/** Which rows of a long table to draw: `[first, end)` around the viewport, with `margin` rows to spare on both sides. */
export function visibleRange(
  { top, viewport, rowHeight, total }: { top: number; viewport: number; rowHeight: number; total: number },
  margin = 20,
): [number, number] {
  const first = Math.floor(-top / rowHeight) - margin;
  const end = Math.ceil((viewport - top) / rowHeight) + margin;
  return [Math.max(0, Math.min(first, total)), Math.max(0, Math.min(end, total))];
}
