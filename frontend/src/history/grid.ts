/** The figures of many rows at the last polls. */
import type { Metric } from '../api/figures';

/**
 * One metric: a ring of polls, each with the values of all rows; and for each row the first poll that it knows, and the
 * latest with a value above zero, 0 if there is none. `rises`: those computed of all rows at the latest poll, by their polls.
 */
type Column = { values: Float32Array; first: Int32Array; above: Int32Array; rises: Map<number, Float64Array> };

/** Where values between records come from: poll `n` of a fill is at `share[n]` between records `next[n] - 1` and `next[n]`. */
export type Placing = {
  /** The number of the first record after each poll; 0 if there is none before it, or only a much older one. */
  next: Int32Array;
  /** 0 to 1; NaN if the poll is after the last record. */
  share: Float64Array;
};

const START_WIDTH = 128;
const START_HEIGHT = 16;

/** The value at `place`, NaN if it is not known. A single value is that of all records. */
function recordOf(values: readonly (number | null)[], place: number): number {
  return values[values.length === 1 ? 0 : place] ?? NaN;
}

function placed(values: readonly (number | null)[], { next, share }: Placing, n: number): number {
  const after = next[n] as number;
  if (after === 0) return NaN;
  const value = recordOf(values, after - 1);
  const part = share[n] as number;
  const later = Number.isNaN(part) ? NaN : recordOf(values, after);
  if (!Number.isNaN(later)) return value + (later - value) * part;
  // A record that is not written yet follows soon: until then, the value is that of the last.
  return Number.isNaN(value) && after >= 2 ? recordOf(values, after - 2) : value;
}

/**
 * The last 32-bit floats of the rows of one table, in one array for each metric: thousands of rows are recorded in a few
 * milliseconds, without an object for each. The values of a poll are adjacent, so that a poll touches little memory, and
 * memory is used only as polls come. Polls are numbered; NaN is unknown.
 */
export class Grid<Row> {
  #columns = new Map<Metric, Column>();
  #figures: readonly (readonly [Column, (row: Row) => number | null])[];
  #slots = new Map<string, number>();
  #free: number[] = [];
  #width = 0;
  #height = 0;
  /** The latest recorded poll. */
  #poll = 0;
  /** The earliest poll of any row. */
  #begin = Infinity;

  /** `kept`: the number of polls that are kept of a table, from its number of rows. */
  constructor(
    figures: Partial<Record<Metric, (row: Row) => number | null>>,
    private readonly kept: (rows: number) => number,
  ) {
    const entries = Object.entries(figures) as [Metric, (row: Row) => number | null][];
    this.#figures = entries.map(([metric, figure]) => {
      const column = { values: new Float32Array(), first: new Int32Array(), above: new Int32Array(), rises: new Map() };
      this.#columns.set(metric, column);
      return [column, figure];
    });
  }

  /** Append a poll. Rows that are gone are forgotten; those that are not `current` are unknown at this poll. */
  record(poll: number, rows: ReadonlyMap<string, Row>, current: (row: Row) => boolean = () => true): void {
    this.#forget(rows);
    this.#reserve(rows.size, poll);
    this.#poll = poll;
    for (const column of this.#columns.values()) column.rises.clear();
    const begin = (poll % this.#width) * this.#height;
    for (const [key, row] of rows) {
      const known = current(row);
      const slot = this.#slots.get(key) ?? (known ? this.#add(key) : -1);
      if (slot < 0) continue;
      const cell = begin + slot;
      for (const [column, figure] of this.#figures) {
        const value = known ? (figure(row) ?? NaN) : NaN;
        column.values[cell] = value;
        if (value > 0) column.above[slot] = poll;
      }
    }
  }

  /**
   * Fill in the unknown values of the last `polls` polls, from records. For the key at each place, `values` returns the
   * values of its records, or a single one that all share, and `placings` where each of the polls is between them.
   */
  fill(
    metric: Metric,
    keys: readonly string[],
    values: (place: number) => readonly (number | null)[],
    placings: (place: number) => Placing,
    polls: number,
  ): void {
    const column = this.#columns.get(metric);
    if (column === undefined || polls === 0) return;
    this.#begin = Math.min(this.#begin, this.#poll - polls + 1);
    this.#reserve(this.#slots.size, this.#poll);
    column.rises.clear();
    keys.forEach((key, place) => {
      const slot = this.#slots.get(key);
      if (slot !== undefined) this.#fillRow(column, slot, values(place), placings(place), polls);
    });
  }

  #fillRow(column: Column, slot: number, values: readonly (number | null)[], placing: Placing, polls: number): void {
    const from = this.#poll - polls + 1;
    let first = column.first[slot] as number;
    const known = first;
    for (let n = Math.max(0, polls - this.#width); n < polls; n++) {
      const poll = from + n;
      const cell = (poll % this.#width) * this.#height + slot;
      if (poll >= known && !Number.isNaN(column.values[cell] as number)) continue;
      const value = placed(values, placing, n);
      column.values[cell] = value;
      if (poll < first && !Number.isNaN(value)) first = poll;
      if (value > 0 && poll > (column.above[slot] as number)) column.above[slot] = poll;
    }
    column.first[slot] = first;
  }

  /** The ring of a row's metric; null for an unknown row. Valid until the next poll. */
  ring(key: string, metric: Metric): RingView | null {
    const slot = this.#slots.get(key);
    const column = this.#columns.get(metric);
    if (slot === undefined || column === undefined) return null;
    return new RingView(column.values, slot, this.#width, this.#height, this.#poll, column.first[slot] as number);
  }

  /**
   * The difference of the means of the last and the first third of a row's last `polls` polls; null if fewer are known
   * of it. It is computed for all rows at once, as a list needs it.
   */
  rise(key: string, metric: Metric, polls: number): number | null {
    const slot = this.#slots.get(key);
    const column = this.#columns.get(metric);
    if (slot === undefined || column === undefined) return null;
    if (polls > this.#width || this.#poll - (column.first[slot] as number) + 1 < polls) return null;
    const rises = column.rises.get(polls) ?? this.#rises(column, polls);
    column.rises.set(polls, rises);
    return rises[slot] as number;
  }

  #rises({ values }: Column, polls: number): Float64Array {
    const rises = new Float64Array(this.#height);
    const third = Math.floor(polls / 3);
    const begin = (ago: number): number => ((this.#poll - ago) % this.#width) * this.#height;
    for (let back = 0; back < third; back++) {
      const [late, early] = [begin(back), begin(polls - 1 - back)];
      for (let slot = 0; slot < this.#height; slot++) {
        rises[slot] = (rises[slot] as number) + ((values[late + slot] as number) - (values[early + slot] as number)) / third;
      }
    }
    return rises;
  }

  /** Whether a row's metric was above zero at any of the last `polls` polls. */
  any(key: string, metric: Metric, polls: number): boolean {
    const slot = this.#slots.get(key);
    const above = slot === undefined ? undefined : this.#columns.get(metric)?.above[slot];
    return above !== undefined && above > this.#poll - Math.min(polls, this.#width);
  }

  /** Number of polls kept of a row; 0 for an unknown row. */
  polls(key: string): number {
    let most = 0;
    for (const metric of this.#columns.keys()) most = Math.max(most, this.ring(key, metric)?.length ?? 0);
    return most;
  }

  #add(key: string): number {
    const slot = this.#free.pop() ?? this.#slots.size;
    this.#slots.set(key, slot);
    for (const { first, above } of this.#columns.values()) {
      first[slot] = this.#poll;
      above[slot] = 0;
    }
    this.#begin = Math.min(this.#begin, this.#poll);
    return slot;
  }

  #forget(rows: ReadonlyMap<string, unknown>): void {
    for (const [key, slot] of this.#slots) {
      if (rows.has(key)) continue;
      this.#slots.delete(key);
      this.#free.push(slot);
    }
  }

  /** Make space for this number of rows, and for the polls up to `poll` of which there are values. */
  #reserve(rows: number, poll: number): void {
    const kept = this.kept(rows);
    const height = rows <= this.#height ? this.#height : Math.max(START_HEIGHT, Math.ceil(1.25 * rows));
    let width = this.#width === 0 || height > this.#height ? Math.min(Math.max(this.#width, START_WIDTH), kept) : this.#width;
    while (width < kept && poll - this.#begin >= width) width = Math.min(kept, 2 * width);
    if (width === this.#width && height === this.#height) return;
    for (const column of this.#columns.values()) this.#move(column, width, height);
    this.#width = width;
    this.#height = height;
  }

  #move(column: Column, width: number, height: number): void {
    const values = new Float32Array(width * height);
    const [first, above] = [new Int32Array(height), new Int32Array(height)];
    first.set(column.first);
    above.set(column.above);
    const [begin, behind] = [Math.max(this.#begin, this.#poll + 1 - Math.min(width, this.#width)), this.#poll + 1];
    for (let poll = begin; poll < behind; poll++) {
      const from = (poll % this.#width) * this.#height;
      values.set(column.values.subarray(from, from + this.#height), (poll % width) * height);
    }
    Object.assign(column, { values, first, above });
  }
}

/** The last values of one row's metric. */
export class RingView {
  /** Number of values. */
  readonly length: number;

  constructor(
    private readonly values: Float32Array,
    private readonly slot: number,
    private readonly width: number,
    private readonly height: number,
    private readonly poll: number,
    first: number,
  ) {
    this.length = Math.min(width, poll - first + 1);
  }

  /** The value that many polls ago, 0 being the latest; NaN if there is none. */
  ago(polls: number): number {
    if (polls < 0 || polls >= this.length) return NaN;
    return this.values[((this.poll - polls) % this.width) * this.height + this.slot] as number;
  }

  /** The last `count` values (all by default), oldest first. */
  last(count = this.length): number[] {
    const taken = Math.min(count, this.length);
    return Array.from({ length: taken }, (_, i) => this.ago(taken - 1 - i));
  }
}
