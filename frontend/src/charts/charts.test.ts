import { expect, test } from 'vitest';
import { bytes, count, duration, latency, plural, rate, short, slope } from './format';
import { decades, linePath, linePoints, timeRange, zeroBased } from './scale';

test.each([
  [0, '0'],
  [987, '987'],
  [999.6, '1.00k'],
  [1234, '1.23k'],
  [12_345, '12.3k'],
  [99_960, '100k'],
  [999_500, '1.00M'],
  [1_200_000, '1.20M'],
  [3e12, '3.00T'],
  [null, '–'],
  [NaN, '–'],
])('%s is written %s', (value, text) => expect(short(value)).toBe(text));

test.each([
  [0, '0 ms'],
  [0.0004, '0.4 µs'],
  [0.42, '0.42 ms'],
  [9.94, '9.9 ms'],
  [9.96, '10 ms'],
  [38, '38 ms'],
  [999.6, '1.00 s'],
  [59_960, '1 m 0 s'],
  [200_000, '3 m 20 s'],
  [7_500_000, '2 h 5 m'],
  [273_600_000, '3 d 4 h'],
  [null, '–'],
])('%s milliseconds are %s', (ms, text) => expect(duration(ms)).toBe(text));

test('what is not known is a dash, what is nothing a zero', () => {
  expect([rate(null), rate(0), rate(0.04), rate(0.4), rate(12), rate(3412)]).toEqual(['–', '0', '0', '0.4', '12', '3.41k']);
  expect([count(null), count(1_234_567)]).toEqual(['–', '1,234,567']);
  expect([slope(null), slope(12), slope(-3.2), slope(0)]).toEqual(['–', '+12/s', '−3.2/s', '0/s']);
  expect([bytes(null), bytes(512), bytes(1536), bytes(1024 ** 3)]).toEqual(['–', '512 B', '1.5 KiB', '1.0 GiB']);
  expect([plural(1, 'node'), plural(2, 'node')]).toEqual(['1 node', '2 nodes']);
});

test('a sparkline stands on zero, so that a flat line is not drawn as nothing', () => {
  expect(linePoints([10, 10], { width: 10, height: 10 })).toEqual([
    [
      [0, 0],
      [10, 0],
    ],
  ]);
  expect(linePoints([0, 0], { width: 10, height: 10 })).toEqual([
    [
      [0, 10],
      [10, 10],
    ],
  ]);
});

test('a young sparkline fills from the right', () => {
  expect(linePoints([1, 1], { width: 100, height: 10, span: 11 })[0]?.map(([x]) => x)).toEqual([90, 100]);
});

test('a gap splits the line', () => {
  const lines = linePoints([1, NaN, 1, null, 1, 1], { width: 5, height: 1 });
  expect(lines.map((line) => line.length)).toEqual([1, 1, 2]);
  expect(linePath(lines)).toBe('M0 0h0.1M2 0h0.1M4 0L5 0');
});

test('a sparkline of nothing draws nothing', () => {
  expect(linePath(linePoints([], { width: 10, height: 10 }))).toBe('');
});

test('axes are never empty', () => {
  expect(timeRange(7200, 7200, 3600)).toEqual([5400, 9000]);
  expect(timeRange(60, 120, 3600)).toEqual([60, 120]);
  expect(zeroBased(null, null)).toEqual([0, 1]);
  expect(zeroBased(0, 0)).toEqual([0, 1]);
  expect(zeroBased(2, 100)).toEqual([0, 108]);
  expect(zeroBased(0, 1, 4)).toEqual([0, 4]);
  expect(decades(null, null)).toEqual([1, 10]);
  expect(decades(0, 50)).toEqual([10, 100]);
  expect(decades(0.3, 80)).toEqual([0.1, 100]);
  expect(decades(10, 10)).toEqual([10, 100]);
});

test.each([
  [38, null, '38 ms'],
  [null, null, '–'],
  [null, [12, 1250], '≈ 12 ms – 1.25 s'],
  [38, [12, 38], '≈ 12 ms – 38 ms'],
  [null, [12, 12], '≈ 12 ms'],
])('a percentile of %s, between %s, reads %s', (ms, range, text) => expect(latency(ms, range).replace('\u00a0', ' ')).toBe(text));
