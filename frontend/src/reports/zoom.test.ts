import { expect, test } from 'vitest';
import { moved, scaled, textOf, within, withReadings, zoomOf } from './zoom';

const WHOLE = [0, 3600] as const;

test('a part is read from the address, and an invalid one is the whole period', () => {
  expect(zoomOf(textOf([100, 200]))).toEqual([100, 200]);
  expect(['', '5', '200-100', '1-2-3', 'a-b', null].map(zoomOf)).toEqual([null, null, null, null, null, null]);
  expect(textOf(null)).toBeNull();
});

test('zooming in halves the part, zooming out ends with the whole period', () => {
  const in1 = scaled(WHOLE, null, 0.5);
  expect(in1).toEqual([900, 2700]);
  expect(scaled(WHOLE, in1, 2)).toBeNull();
  expect(scaled(WHOLE, [0, 100], 0.01)).toEqual([20, 80]);
});

test('a part moves up to the ends of the period', () => {
  expect(moved(WHOLE, [900, 2700], -1)).toEqual([0, 1800]);
  expect(moved(WHOLE, [0, 1800], -1)).toEqual([0, 1800]);
  expect(moved(WHOLE, [900, 2700], 1)).toEqual([1800, 3600]);
});

test('a selection is at least a minute, within the period', () => {
  expect(within(WHOLE, [3599, 3600])).toEqual([3540, 3600]);
  expect(within(WHOLE, [-50, 4000])).toBeNull();
});

test('the charts begin with the first reading if it is in the second half of the period', () => {
  expect(withReadings(WHOLE, 1801)).toEqual([1801, 3600]);
  expect([0, 1800, 3600, null].map((first) => withReadings(WHOLE, first))).toEqual([WHOLE, WHOLE, WHOLE, WHOLE]);
});
