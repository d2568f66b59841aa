import { expect, test } from 'vitest';
import { Slots, type RowKey } from './slots';

function drawn(slots: Slots, keys: RowKey[], { reuse = true, focused = null }: { reuse?: boolean; focused?: RowKey | null } = {}): number[] {
  slots.assign(keys, { reuse, focused });
  return keys.map((key) => slots.of(key));
}

test('rows that stay keep their elements, and rows that come are given those of rows that left', () => {
  const slots = new Slots();
  const [a, b, c] = drawn(slots, ['a', 'b', 'c']);
  expect(drawn(slots, ['b', 'c', 'd'])).toEqual([b, c, a]);
  expect(new Set([a, b, c]).size).toBe(3);
});

test('the element with the focus is not given to another row', () => {
  const slots = new Slots();
  const [a, b] = drawn(slots, ['a', 'b']);
  const after = drawn(slots, ['c', 'd'], { focused: 'a' });
  expect(after).toContain(b);
  expect(after).not.toContain(a);
});

test('a focused row that stays keeps its element', () => {
  const slots = new Slots();
  const [a, b] = drawn(slots, ['a', 'b']);
  expect(drawn(slots, ['c', 'b'], { focused: 'b' })).toEqual([a, b]);
});

test('without reuse, rows that come are given new elements', () => {
  const slots = new Slots();
  const before = drawn(slots, ['a', 'b']);
  const [c, d] = drawn(slots, ['c', 'd'], { reuse: false });
  expect(before).not.toContain(c);
  expect(before).not.toContain(d);
  expect(c).not.toBe(d);
});

test('more rows than before are given further elements', () => {
  const slots = new Slots();
  drawn(slots, ['a']);
  expect(new Set(drawn(slots, ['b', 'c', 'd'])).size).toBe(3);
});
