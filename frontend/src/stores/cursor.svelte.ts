/** The table for keyboard navigation: the last one used, otherwise the first on the page. */
export type TableCursor = {
  /** Move by this many rows, at most to the first or last. */
  move(rows: number): void;
  /** Select or deselect the current row. */
  choose(): void;
};

const tables: TableCursor[] = [];
let last: TableCursor | null = null;

/** Register a table while it is on the page; returns a function that removes it. */
export function registerTable(table: TableCursor): () => void {
  tables.push(table);
  return () => {
    tables.splice(tables.indexOf(table), 1);
    if (last === table) last = null;
  };
}

export function touchTable(table: TableCursor): void {
  last = table;
}

export function currentTable(): TableCursor | null {
  return last ?? tables[0] ?? null;
}
