/** Tables by columns: each field has the values of all rows, in the order of the rows. */

/** Values of rows by field. */
export type Columns<Row> = { [Field in keyof Row]?: Row[Field][] };

/** The fields that `columns` has. */
export function fieldsOf<Row>(columns: Columns<Row>): (keyof Row)[] {
  return Object.keys(columns) as (keyof Row)[]; // its type permits no others
}

/** Write a column into the rows of the same places; missing rows are left out. */
export function setColumn<Row extends object, Field extends keyof Row>(rows: readonly (Row | undefined)[], field: Field, column: readonly Row[Field][] | undefined): void {
  column?.forEach((value, at) => {
    const row = rows[at];
    if (row !== undefined) row[field] = value;
  });
}
