import { expect, test } from 'vitest';
import { bytes, clock, count, dateTime, duration, latency, plural, rate, short, slope, timeText } from './format';

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
  [-1500, '−1.50 s'],
  [null, '–'],
])('%s milliseconds are %s', (ms, text) => expect(duration(ms)).toBe(text));

test('an unknown value is a dash, an empty one a zero', () => {
  expect([rate(null), rate(0), rate(0.04), rate(0.4), rate(12), rate(3412)]).toEqual(['–', '0', '0', '0.4', '12', '3.41k']);
  expect([count(null), count(1_234_567)]).toEqual(['–', '1,234,567']);
  expect([slope(null), slope(12), slope(-3.2), slope(0)]).toEqual(['–', '+12/s', '−3.2/s', '0/s']);
  expect([bytes(null), bytes(512), bytes(1536), bytes(1024 ** 3)]).toEqual(['–', '512 B', '1.5 KiB', '1.0 GiB']);
  expect([plural(1, 'node'), plural(2, 'node')]).toEqual(['1 node', '2 nodes']);
});

test.each([
  [38, null, '38 ms'],
  [null, null, '–'],
  [null, [12, 1250], '≈ 12 ms – 1.25 s'],
  [38, [12, 38], '≈ 12 ms – 38 ms'],
  [null, [12, 12], '≈ 12 ms'],
])('a percentile of %s, between %s, reads %s', (ms, range, text) => expect(latency(ms, range).replace('\u00a0', ' ')).toBe(text));

test('a time of day that is far from now has its date', () => {
  const now = Date.UTC(2026, 10, 20, 12);
  for (const near of [now, now - 42_000_000, now + 42_000_000]) expect(timeText(near, now)).toBe(clock(near));
  for (const far of [now - 43_200_000, now + 43_200_000]) expect(timeText(far, now)).toBe(dateTime(far));
});
