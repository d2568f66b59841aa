/** Sentences about the size of the archive. */
import type { ArchiveDataset, ArchiveSize } from '../api/types';
import { DASH, dateTime, plural } from '../format/format';

const DAY_MS = 86_400_000;

/** Time in ms after which a page asks again. The first answer may be the listing of an earlier visit: the platform then makes a new one. */
export function askAgainMs(size: ArchiveSize | null, answers: number): number {
  if (size === null || size.listed_at === null || size.listed_at === undefined) return 2_000;
  return answers === 1 ? 5_000 : 60_000;
}

/** A date in UTC: `20 Nov 2026`. */
export function day(at: number | null | undefined): string {
  if (at === null || at === undefined) return DASH;
  return new Date(at).toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric', timeZone: 'UTC' });
}

/** The start of an hour or day in UTC: `20 Nov 2026, 17:00`. */
export function hour(at: number | null | undefined): string {
  if (at === null || at === undefined) return DASH;
  return `${day(at)}, ${new Date(at).toISOString().slice(11, 16)}`;
}

/** `30 days`; a part of a day in hours. */
export function kept(days: number | null | undefined): string {
  if (days === null || days === undefined) return 'for ever';
  return days >= 1 ? plural(Math.round(days * 10) / 10, 'day') : plural(Math.round(days * 24), 'hour');
}

/** The parts whose growth is not known yet, with the time when it will be. */
function unknownParts(datasets: readonly ArchiveDataset[]): { title: string; knownAt: number }[] {
  return datasets.flatMap(({ title, growth_known_at: at }) => (at === null || at === undefined ? [] : [{ title, knownAt: at }]));
}

/** What the forecast is made of, or why there is none. */
export function forecastWords(size: ArchiveSize): string {
  const unknown = unknownParts(size.datasets);
  if (size.growth_bytes_per_day === null || size.growth_bytes_per_day === undefined) {
    if (unknown.length === 0) return 'The archive is empty.';
    const known = Math.min(...unknown.map(({ knownAt }) => knownAt));
    return `The growth is not known yet: it needs a whole UTC day, whose hours have been compacted. It will be known on ${dateTime(known)}.`;
  }
  const days = Math.max(0, ...size.datasets.map(({ growth_days }) => growth_days ?? 0));
  return [
    `The growth is the mean of the last ${plural(days, 'whole day')}, in UTC. Changes of traffic, topics or channels are not foreseen.`,
    ...unknown.map(({ title, knownAt }) => `${title} are counted as they are: their growth will be known on ${dateTime(knownAt)}.`),
  ].join(' ');
}

/** How long each part is kept; the page names the schedule before it. */
export function retentionWords(size: ArchiveSize): string {
  if (size.schedule === null || size.schedule === undefined) return 'No enabled schedule removes old data: the archive grows for ever.';
  const known = size.datasets.filter(({ kept_days }) => kept_days !== null && kept_days !== undefined);
  const parts = known.map(({ title, kept_days }) => `${title.toLowerCase()} for ${kept(kept_days)}`);
  return parts.length === 0 ? '' : `It keeps ${parts.join(', ')}.`;
}

/** When the disk is full, from the archive's growth alone. */
export function diskWords(size: ArchiveSize, now: number): string {
  if (size.free_bytes === null || size.free_bytes === undefined) return 'The free space is not known: the archive is not on a disk of the worker.';
  if (size.growth_bytes_per_day === null || size.growth_bytes_per_day === undefined) return 'When the disk is full is not known yet.';
  if (size.full_at === null || size.full_at === undefined) return 'The archive does not fill the disk within ten years.';
  const days = Math.max(0, Math.round((size.full_at - now) / DAY_MS));
  return `If nothing else is written to it, the disk is full on ${day(size.full_at)}, in ${plural(days, 'day')}.`;
}

/** The size when retention removes as much as is added. */
export function atRetention(size: Pick<ArchiveSize, 'schedule' | 'growth_bytes_per_day' | 'retention_reached_at'>, now: number): string {
  if (size.schedule === null || size.schedule === undefined) return 'without retention';
  if (size.growth_bytes_per_day === null || size.growth_bytes_per_day === undefined) return 'not known yet';
  if (size.retention_reached_at === null || size.retention_reached_at === undefined) return 'some data is kept for ever';
  return size.retention_reached_at <= now ? 'reached' : `from ${day(size.retention_reached_at)} on`;
}

/** A bar's length in percent of the largest. */
export const share = (size: number, all: readonly { bytes: number }[]): number => (100 * size) / Math.max(1, ...all.map((each) => each.bytes));
