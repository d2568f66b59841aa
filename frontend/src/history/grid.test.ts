import { expect, test } from 'vitest';
import { Grid, type Placing } from './grid';

type Row = { depth: number | null; rate: number | null };

/** The same, with a list for each row and metric. */
class Lists {
  #lists = new Map<string, { depth: number[]; publish_rate: number[] }>();

  record(rows: ReadonlyMap<string, Row>, current: (row: Row) => boolean): void {
    for (const key of this.#lists.keys()) if (!rows.has(key)) this.#lists.delete(key);
    for (const [key, row] of rows) {
      if (!this.#lists.has(key) && !current(row)) continue;
      const list = this.#lists.get(key) ?? { depth: [], publish_rate: [] };
      this.#lists.set(key, list);
      list.depth.push((current(row) ? row.depth : null) ?? NaN);
      list.publish_rate.push((current(row) ? row.rate : null) ?? NaN);
    }
  }

  fill(key: string, valueAt: (ago: number) => number, polls: number): void {
    const depth = this.#lists.get(key)?.depth;
    if (depth === undefined) return;
    for (let ago = 0; ago < polls; ago++) {
      if (ago >= depth.length) depth.unshift(valueAt(ago));
      else if (Number.isNaN(depth.at(-1 - ago))) depth[depth.length - 1 - ago] = valueAt(ago);
    }
    while (depth.length > 1 && Number.isNaN(depth[0])) depth.shift();
  }

  last(key: string, metric: 'depth' | 'publish_rate', count: number): number[] {
    return (this.#lists.get(key)?.[metric] ?? []).slice(-count);
  }
}

/** The mean of the last third minus that of the first. */
function thirdsOf(values: number[]): number {
  const third = Math.floor(values.length / 3);
  const mean = (part: number[]): number => part.reduce((sum, value) => sum + value, 0) / third;
  return mean(values.slice(-third)) - mean(values.slice(0, third));
}

/** Repeatable pseudo-random whole numbers below `below` (a linear congruential generator). */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Without the unknown values before the first known one. */
const known = (values: number[]): number[] => values.slice(values.findIndex((value) => !Number.isNaN(value)));

test.each(Array.from({ length: 30 }, (_, seed) => seed + 1))('every row has the values that a list of its own would have (seed %i)', (seed) => {
  const random = randomOf(seed);
  const kept = [3, 40, 120, 300, 700][random(5)] as number;
  const most = 1 + random(60);
  const grid = new Grid<Row>({ depth: (row) => row.depth, publish_rate: (row) => row.rate }, () => kept);
  const lists = new Lists();
  const rows = new Map<string, Row>();
  for (let poll = 5000; poll < 5000 + 50 + random(400); poll++) {
    for (let n = random(4); n > 0; n--) {
      const key = `row ${random(most)}`;
      if (random(3) === 0) rows.delete(key);
      else rows.set(key, { depth: null, rate: null });
    }
    for (const row of rows.values()) Object.assign(row, { depth: random(1000), rate: [null, 0, 0, random(100)][random(4)] });
    const narrow = random(4) === 0;
    const current = (row: Row): boolean => !narrow || (row.depth as number) % 2 === 0;
    grid.record(poll, rows, current);
    lists.record(rows, current);
    if (random(100) === 0) {
      const polls = Math.min(kept, 1 + random(200));
      const next = Int32Array.from({ length: polls }, () => 1);
      const placing: Placing = { next, share: new Float64Array(polls).fill(NaN) };
      const value = random(1000);
      grid.fill('depth', [...rows.keys()], () => [value], () => placing, polls);
      for (const key of rows.keys()) lists.fill(key, () => value, polls);
    }
  }
  for (const key of Array.from({ length: most }, (_, n) => `row ${n}`)) {
    const length = grid.ring(key, 'depth')?.length ?? 0;
    expect(length > 0).toBe(rows.has(key) && lists.last(key, 'depth', kept).length > 0);
    for (const metric of ['depth', 'publish_rate'] as const) {
      expect(known(grid.ring(key, metric)?.last() ?? [])).toEqual(known(lists.last(key, metric, kept)));
      for (const polls of [1, 20, 100]) {
        expect(grid.any(key, metric, polls)).toBe(lists.last(key, metric, Math.min(kept, polls)).some((value) => value > 0));
      }
      for (const polls of [3, 20, 60]) {
        const values = grid.ring(key, metric)?.last(polls) ?? [];
        const rise = grid.rise(key, metric, polls);
        if (values.length < polls) expect(rise).toBeNull();
        else expect(rise?.toFixed(6)).toBe(thirdsOf(values).toFixed(6));
      }
    }
  }
});

test('a value between two records is interpolated, and one after the last is that of the last', () => {
  const grid = new Grid<Row>({ depth: (row) => row.depth }, () => 10);
  grid.record(100, new Map([['a', { depth: 7, rate: null }]]));
  const placing = { next: Int32Array.of(0, 1, 1, 2, 2), share: Float64Array.of(NaN, 0, 0.5, NaN, NaN) };
  grid.fill('depth', ['a', 'gone'], () => [10, 20], () => placing, 5);
  expect(grid.ring('a', 'depth')?.last()).toEqual([10, 15, 20, 7]);
  expect(grid.ring('gone', 'depth')).toBeNull();
});
