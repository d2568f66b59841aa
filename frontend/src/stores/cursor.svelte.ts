/** The table that the keyboard moves in: the one last touched, else the first on the page. */
export type TableCursor = {
  /** Move to the row so many further; the first or last at the ends. */
  move(rows: number): void;
  /** Choose the row the cursor is on, or no longer. */
  choose(): void;
};

const tables: TableCursor[] = [];
let last: TableCursor | null = null;

/** Make a table known while it is on the page; returns how to take it away. */
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
