import { afterEach, expect, test } from 'vitest';
import { isChosen, PRESETS, withPreset } from './presets';

const zone = process.env['TZ'];
afterEach(() => {
  process.env['TZ'] = zone;
});

const preset = (text: string) => PRESETS.find((each) => each.text === text)!;

test('a preset sets period and end, and leaves the other fields alone', () => {
  const texts = { topic: 'orders', period: '5h', until: '2026-03-14T15:00' };
  const now = new Date(2026, 2, 14, 16, 30);
  const week = withPreset(texts, preset('Last 7 days'), now);
  expect(week).toEqual({ topic: 'orders', period: '7d', until: '' });
  expect(PRESETS.filter((each) => isChosen(week, each, now))).toEqual([preset('Last 7 days')]);
  expect(PRESETS.some((each) => isChosen(texts, each, now))).toBe(false);
});

test('yesterday is a day of the viewer’s zone, also when clocks change, and is not for schedules', () => {
  process.env['TZ'] = 'Europe/Berlin';
  const of = (now: string) => preset('Yesterday').of(new Date(now));
  expect(of('2026-11-23T11:00:00Z')).toEqual({ period: '24h', until: '2026-11-23T00:00' });
  expect(of('2026-10-26T11:00:00Z').period).toBe('25h');
  expect(of('2026-03-30T11:00:00Z').period).toBe('23h');
  expect(preset('Yesterday').recurs).toBe(false);
});
