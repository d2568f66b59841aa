import { expect, test } from 'vitest';
import type { ArchiveDataset, ArchiveSize } from '../api/types';
import { askAgainMs, atRetention, day, diskWords, forecastWords, hour, kept, retentionWords, share } from './archive';

const NOW = Date.UTC(2026, 10, 20, 12);
const DAY = 86_400_000;
const samples: ArchiveDataset = { name: 'samples', title: 'Samples', grows: true, files: 10, bytes: 1000, oldest: NOW - DAY, newest: NOW, kept_days: 30, growth_days: 0, growth_known_at: NOW + DAY };
const size: ArchiveSize = { place: '/archive', listed_at: NOW, error: '', schedule: { id: 3, name: 'Remove expired data' }, datasets: [samples], bytes: 1000, days: [], free_bytes: 10, disk_bytes: 20 };
const grown: ArchiveSize = { ...size, growth_bytes_per_day: 500, datasets: [{ ...samples, growth_days: 7, growth_known_at: null, growth_bytes_per_day: 500 }] };

test('a page asks soon for the first listing and for one that is newer than that of an earlier visit, then once a minute', () => {
  expect(askAgainMs(null, 0)).toBe(2_000);
  expect(askAgainMs({ ...size, listed_at: null }, 3)).toBe(2_000);
  expect(askAgainMs(size, 1)).toBe(5_000);
  expect(askAgainMs(size, 2)).toBe(60_000);
});

test('an archive of a day says when its growth will be known', () => {
  expect(forecastWords(size)).toMatch(/^The growth is not known yet: it needs a whole UTC day/);
  expect(diskWords(size, NOW)).toBe('When the disk is full is not known yet.');
});

test('an archive without files is empty', () => expect(forecastWords({ ...size, datasets: [] })).toBe('The archive is empty.'));

test('the forecast says what it is made of', () => {
  expect(forecastWords(grown)).toMatch(/^The growth is the mean of the last 7 whole days, in UTC\./);
  expect(diskWords({ ...grown, full_at: NOW + 12 * DAY }, NOW)).toBe('If nothing else is written to it, the disk is full on 2 Dec 2026, in 12 days.');
  expect(diskWords(grown, NOW)).toBe('The archive does not fill the disk within ten years.');
  expect(diskWords({ ...grown, free_bytes: null }, NOW)).toMatch(/^The free space is not known/);
});

test('the forecast names a part whose growth is not known yet', () => {
  const lives: ArchiveDataset = { ...samples, name: 'lives', title: 'Lives of messages' };
  expect(forecastWords({ ...grown, datasets: [...grown.datasets, lives] })).toMatch(/ Lives of messages are counted as they are: their growth will be known on 21 Nov 2026, /);
});

test('retention names what is kept for how long', () => {
  expect(retentionWords(size)).toBe('It keeps samples for 30 days.');
  expect(retentionWords({ ...size, schedule: null })).toMatch(/grows for ever/);
  expect(kept(1)).toBe('1 day');
  expect(kept(0.25)).toBe('6 hours');
  expect(kept(null)).toBe('for ever');
  expect(atRetention({ ...grown, retention_reached_at: NOW - 1 }, NOW)).toBe('reached');
  expect(atRetention({ ...grown, retention_reached_at: NOW + DAY }, NOW)).toBe('from 21 Nov 2026 on');
  expect(atRetention({ ...size, schedule: null }, NOW)).toBe('without retention');
});

test('the size at retention is not known before the growth is, nor if something is kept for ever', () => {
  expect(atRetention(size, NOW)).toBe('not known yet');
  expect(atRetention(grown, NOW)).toBe('some data is kept for ever');
});

test('times are in UTC', () => {
  expect(day(NOW)).toBe('20 Nov 2026');
  expect(hour(NOW)).toBe('20 Nov 2026, 12:00');
});

test('the largest bar has the whole length', () => {
  expect(share(50, [{ bytes: 50 }, { bytes: 200 }])).toBe(25);
  expect(share(0, [])).toBe(0);
});
