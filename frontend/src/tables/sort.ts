/** A table's order, as addresses have it. */
import type { Sort } from './table';

/** `-depth` is depth, largest first. */
export function sortText(sort: Sort): string {
  return (sort.descending ? '-' : '') + sort.column;
}

export function parseSort(text: string): Sort | null {
  const [, minus, column] = /^(-?)(\w+)$/.exec(text) ?? [];
  return column === undefined ? null : { column, descending: minus === '-' };
}
