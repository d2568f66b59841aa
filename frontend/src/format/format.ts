/** Numbers, ages and times as text. Null, unknown, is a dash. */

export const DASH = '–';

const SUFFIXES = ['', 'k', 'M', 'G', 'T'] as const;

/**
 * Every digit, grouped: `1,234,567`. Intl is not used: its first formatter takes 20 ms of a page's start, and it formats
 * each number several times more slowly.
 */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  const digits = String(Math.round(Math.abs(value)));
  return (value < 0 ? '-' : '') + (digits.length < 4 ? digits : digits.replace(/\B(?=(\d{3})+$)/g, ','));
}

/** About three digits: `987`, `12.3k`, `1.20M`. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return DASH;
  let scaled = Math.abs(value);
  let power = 0;
  while (scaled >= 999.5 && power < SUFFIXES.length - 1) {
    scaled /= 1000;
    power += 1;
  }
  const digits = power === 0 ? (Number.isInteger(scaled) || scaled >= 100 ? 0 : 1) : scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return (value < 0 ? '−' : '') + scaled.toFixed(digits) + SUFFIXES[power];
}

/** A figure on an axis: as `short`, with enough decimals to distinguish small values. */
export function tick(value: number): string {
  return Math.abs(value) < 10 ? String(Number(value.toFixed(2))) : short(value);
}

/** Per second: `0`, `0.4`, `12`, `3.41k`. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  if (Math.abs(value) < 0.05) return '0';
  return Math.abs(value) < 10 ? value.toFixed(1).replace(/\.0$/, '') : short(Math.round(value));
}

/** Rise or fall per second with its sign: `+12/s`. */
export function slope(value: number | null): string {
  if (value === null) return DASH;
  const text = rate(Math.abs(value));
  return text === '0' ? '0/s' : `${value > 0 ? '+' : '−'}${text}/s`;
}

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  let scaled = value;
  let power = 0;
  while (scaled >= 1024 && power < BYTE_UNITS.length - 1) {
    scaled /= 1024;
    power += 1;
  }
  return `${scaled.toFixed(power === 0 || scaled >= 100 ? 0 : 1)} ${BYTE_UNITS[power]}`;
}

/** A latency or age in the unit a person would choose: `0.42 ms`, `38 ms`, `1.25 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return DASH;
  if (ms === 0) return '0 ms';
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1) return ms < 0.01 ? `${(ms * 1000).toFixed(1)} µs` : `${ms.toFixed(2)} ms`;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  const seconds = ms / 1000;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 3600) return `${Math.floor(s / 60)} m ${s % 60} s`;
  const m = Math.round(seconds / 60);
  if (m < 1440) return `${Math.floor(m / 60)} h ${m % 60} m`;
  const h = Math.round(seconds / 3600);
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

export const MERGED_HELP = 'From publishing to finishing, messages finished in the last minute';
export const RANGE_HELP =
  'Some nodes report only percentiles, which cannot be merged: the exact one is between the lowest and the highest';

/** A percentile, `38 ms`, or a range, `≈ 12 ms – 1.25 s`. */
export function latency(ms: number | null | undefined, range?: readonly number[] | null): string {
  const [lowest, highest] = range ?? [];
  if (lowest === undefined || highest === undefined) return duration(ms);
  return `≈\u00a0${lowest === highest ? duration(lowest) : `${duration(lowest)} – ${duration(highest)}`}`;
}

/** Wall-clock time in the viewer's zone, 24 hours: `17:04:09`. */
export function clock(at: number | Date): string {
  return new Date(at).toLocaleTimeString('en-GB', { hour12: false });
}

const SHORT_DATE = { day: 'numeric', month: 'short' } as const;
const HOUR_MINUTE = { hour: '2-digit', minute: '2-digit', hour12: false } as const;

/** A time on an axis of `span` seconds: with the date if it is longer than a day, and no time of day if it is long. */
export function timeLabel(at: number, span: number): string {
  const date = new Date(at * 1000);
  if (span <= 3600) return clock(date);
  const time = date.toLocaleTimeString('en-GB', HOUR_MINUTE);
  if (span <= 90_000) return time; // the day on which clocks are set back has 25 hours
  if (span > 300 * 86_400) return date.toLocaleDateString('en-GB', { ...SHORT_DATE, year: 'numeric' });
  const day = date.toLocaleDateString('en-GB', SHORT_DATE);
  return span > 20 * 86_400 ? day : `${day} ${time}`;
}

/** A time with its date, unless it is today: `22 Nov 03:00:10`; with the year, unless it is this year's. */
export function momentLabel(at: number, now: Date): string {
  const date = new Date(at * 1000);
  if (date.toDateString() === now.toDateString()) return clock(date);
  const isThisYear = date.getFullYear() === now.getFullYear();
  const day = date.toLocaleDateString('en-GB', isThisYear ? SHORT_DATE : { ...SHORT_DATE, year: 'numeric' });
  return `${day} ${clock(date)}`;
}

/** A span of time in the viewer's zone: `22 Nov, 02:50 – 03:10`. */
export function windowLabel(from: number, to: number, now = new Date()): string {
  const [since, until] = [new Date(from * 1000), new Date(to * 1000)];
  const seconds = from % 60 || to % 60 ? { second: '2-digit' } as const : {};
  const moment = (date: Date): string => {
    const year = date.getFullYear() === now.getFullYear() ? {} : ({ year: 'numeric' } as const);
    return date.toLocaleString('en-GB', { ...SHORT_DATE, ...year, ...HOUR_MINUTE, ...seconds });
  };
  const isOneDay = since.toDateString() === until.toDateString();
  return `${moment(since)} – ${isOneDay ? until.toLocaleTimeString('en-GB', { ...HOUR_MINUTE, ...seconds }) : moment(until)}`;
}

/** The viewer's time zone: `Europe/Berlin`. */
export const zoneName = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Date and time in the viewer's zone: `20 Nov 2026, 17:04:09`. */
export function dateTime(at: number | null): string {
  if (at === null) return DASH;
  return new Date(at).toLocaleString('en-GB', {
    day: 'numeric',
    month: 'short',
    year: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hour12: false,
  });
}

/** Date and time without seconds, for narrow columns: `20 Nov, 17:04`; with the year, unless it is this year's. */
export function minuteOf(at: number | null, now = new Date()): string {
  if (at === null) return DASH;
  const date = new Date(at);
  const year = date.getFullYear() === now.getFullYear() ? {} : ({ year: 'numeric' } as const);
  return date.toLocaleString('en-GB', { ...SHORT_DATE, ...year, ...HOUR_MINUTE });
}

const HALF_A_DAY_MS = 43_200_000;

/** A time of day, `17:04:09`; with the date if it is half a day or more from `now`. Both are in Unix milliseconds. */
export function timeText(at: number, now: number): string {
  return Math.abs(now - at) < HALF_A_DAY_MS ? clock(at) : dateTime(at);
}

/** `1 message`, `2 messages`. */
export function plural(n: number, noun: string, many = `${noun}s`): string {
  return `${count(n)} ${n === 1 ? noun : many}`;
}
