import { afterEach, expect, test } from 'vitest';
import { between, boundsOf, inputOf, invalidParameters, moved, parametersOf, PRESETS, selection, windowOf, yesterday, zoomedOut, type Window } from './window';

const zone = process.env['TZ'];
afterEach(() => {
  process.env['TZ'] = zone;
});

const at = (text: string): number => Date.parse(text) / 1000;
const searchOf = (window: Window): URLSearchParams =>
  new URLSearchParams(Object.entries(parametersOf(window)).filter((pair): pair is [string, string] => pair[1] !== null));

test('an address shows the window from which it was made', () => {
  const windows: Window[] = [
    ...PRESETS.map(({ key, seconds }): Window => ({ kind: 'last', key, seconds })),
    { kind: 'between', from: at('2026-11-22T02:50:00Z'), to: at('2026-11-22T03:10:00Z') },
  ];
  for (const window of windows) expect(windowOf(searchOf(window))).toEqual(window);
});

test('an address with an invalid window shows the usual one', () => {
  for (const text of ['', 'span=2y', 'from=now', 'from=2026-11-22T03:00:00Z', 'from=2026-11-22T03:00&to=2026-11-22T04:00', 'from=2026-11-22T04:00:00Z&to=2026-11-22T03:00:00Z'])
    expect(windowOf(new URLSearchParams(text))).toEqual({ kind: 'last', key: '15m', seconds: 900 });
});

test('the part of an address that is not understood is named', () => {
  for (const [text, part] of [
    ['', ''],
    ['span=6h', ''],
    ['from=2026-11-22T03:00:00Z&to=2026-11-22T04:00:00Z', ''],
    ['span=zzz', 'span=zzz'],
    ['to=abc', 'to=abc'],
    ['span=6h&to=abc', 'to=abc'],
    ['from=2026-11-22T04:00:00Z&to=2026-11-22T03:00:00Z', 'from=2026-11-22T04:00:00Z and to=2026-11-22T03:00:00Z'],
  ] as const)
    expect(invalidParameters(new URLSearchParams(text))).toBe(part);
});

test('yesterday is a day of the viewer’s zone, also when clocks change', () => {
  process.env['TZ'] = 'Europe/Berlin';
  expect(yesterday(new Date('2026-11-23T11:00:00Z'))).toEqual({ kind: 'between', from: at('2026-11-21T23:00:00Z'), to: at('2026-11-22T23:00:00Z') });
  const hours = (now: string): number => {
    const [from, to] = boundsOf(yesterday(new Date(now)), 0);
    return (to - from) / 3600;
  };
  expect(hours('2026-10-26T11:00:00Z')).toBe(25);
  expect(hours('2026-03-30T11:00:00Z')).toBe(23);
});

test('the picker reads and writes local times', () => {
  process.env['TZ'] = 'America/New_York';
  const now = at('2026-11-23T12:00:00Z');
  expect(inputOf(at('2026-11-22T08:00:00Z'))).toBe('2026-11-22T03:00');
  expect(between('2026-11-22T03:00', '2026-11-22T04:00', now)).toEqual({ kind: 'between', from: at('2026-11-22T08:00:00Z'), to: at('2026-11-22T09:00:00Z') });
});

test('a picked window that cannot be shown is refused at its field', () => {
  const now = at('2026-11-23T12:00:00Z');
  const fault = (from: string, to: string): unknown => {
    const made = between(from, to, now);
    return 'field' in made ? made.field : made;
  };
  expect(fault('', '2026-11-22T04:00')).toBe('from');
  expect(fault('2026-11-22T04:00', '')).toBe('to');
  expect(fault('2026-11-22T04:00', '2026-11-22T04:00')).toBe('to');
  expect(fault('2027-11-22T04:00', '2027-11-22T05:00')).toBe('from');
  expect(fault('2024-11-22T04:00', '2026-11-22T05:00')).toBe('from');
});

test('a window moves by its length, and never beyond now', () => {
  const now = 10_000;
  const earlier = moved({ kind: 'last', key: '5m', seconds: 300 }, -1, now);
  expect(earlier).toEqual({ kind: 'between', from: 9400, to: 9700 });
  expect(moved(earlier, 1, now)).toEqual({ kind: 'between', from: 9700, to: 10_000 });
  expect(moved({ kind: 'between', from: 9500, to: 9900 }, 1, now)).toEqual({ kind: 'between', from: 9600, to: 10_000 });
});

test('zooming out doubles the window, and a tiny selection is widened', () => {
  expect(zoomedOut({ kind: 'between', from: 1000, to: 1600 }, 10_000)).toEqual({ kind: 'between', from: 700, to: 1900 });
  expect(zoomedOut({ kind: 'last', key: '5m', seconds: 300 }, 10_000)).toEqual({ kind: 'between', from: 9400, to: 10_000 });
  expect(selection(1000, 1004)).toEqual({ kind: 'between', from: 972, to: 1032 });
});
