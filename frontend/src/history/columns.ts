/** Columns of numbers over time. */

/** Unix seconds, then a column per metric; null where nothing was known. */
export type Columns = [number[], ...(number | null)[][]];

/**
 * `live`, before it `past`, and `past` also for times at which `live` has no values because the page showed another view. Both
 * are oldest first, with the same columns.
 */
export function joined(past: Columns | null, live: Columns): Columns {
  if (past === null) return live;
  const [times, ...values] = live;
  const made = live.map((): (number | null)[] => []);
  const take = (from: Columns, begin: number, end: number) =>
    made.forEach((column, index) => column.push(...(from[index] ?? []).slice(begin, end)));
  let older = 0;
  let row = 0;
  while (row <= times.length) {
    let next = row; // the next row in which something is known; rows before it are a gap, or there are none
    while (next < times.length && values.every((column) => column[next] === null)) next++;
    const begin = older;
    const until = times[next] ?? Infinity;
    while (older < past[0].length && (past[0][older] as number) < until) older++;
    if (older > begin && (next > row || row === 0)) take(past, begin, older);
    else take(live, row, next);
    if (next < times.length) take(live, next, next + 1);
    row = next + 1;
  }
  return made as Columns;
}

/** The rows from one time to another, both included. */
export function within(columns: Columns, from: number, to: number): Columns {
  const [times] = columns;
  const first = times.findIndex((at) => at >= from);
  const behind = times.findLastIndex((at) => at <= to) + 1;
  if (first === -1) return columns.map(() => []) as unknown as Columns;
  return first === 0 && behind === times.length ? columns : (columns.map((column) => column.slice(first, behind)) as Columns);
}
