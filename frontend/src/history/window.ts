/** The window of charts: which time they show. It is part of the address; times are Unix seconds. */

export type Window =
  | { kind: 'last'; key: string; seconds: number }
  | { kind: 'between'; from: number; to: number };

const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;

export const PRESETS = [
  { key: '5m', short: '5 m', text: 'Last 5 minutes', seconds: 300 },
  { key: '15m', short: '15 m', text: 'Last 15 minutes', seconds: 900 },
  { key: '1h', short: '1 h', text: 'Last hour', seconds: HOUR_S },
  { key: '6h', short: '6 h', text: 'Last 6 hours', seconds: 6 * HOUR_S },
  { key: '24h', short: '24 h', text: 'Last 24 hours', seconds: DAY_S },
  { key: '7d', short: '7 d', text: 'Last 7 days', seconds: 7 * DAY_S },
  { key: '30d', short: '30 d', text: 'Last 30 days', seconds: 30 * DAY_S },
  { key: '90d', short: '90 d', text: 'Last 90 days', seconds: 90 * DAY_S },
  { key: '15mo', short: '15 mo', text: 'Last 15 months', seconds: 457 * DAY_S },
] as const;
export const DEFAULT_PRESET = '15m';
export const LONGEST_S = 457 * DAY_S;
/** A shorter selection is widened around its middle: history has a value each ten seconds. */
export const SHORTEST_S = 60;

export type Parameters = { span: string | null; from: string | null; to: string | null };

/** The window of an address; the default one if the address has none, or an invalid one. */
export function windowOf(search: URLSearchParams): Window {
  const [from, to] = [parsed(search.get('from')), parsed(search.get('to'))];
  if (from !== null && to !== null && from < to) return { kind: 'between', from, to };
  const key = search.get('span') ?? DEFAULT_PRESET;
  const preset = PRESETS.find((each) => each.key === key) ?? PRESETS[1];
  return { kind: 'last', key: preset.key, seconds: preset.seconds };
}

/** The parameters of an address that `windowOf` does not understand, such as `span=zzz`; empty if it understands all. */
export function invalidParameters(search: URLSearchParams): string {
  const given = (names: readonly string[]): string =>
    names.filter((name) => search.has(name)).map((name) => `${name}=${search.get(name) ?? ''}`).join(' and ');
  const range = given(['from', 'to']);
  if (range !== '') return windowOf(search).kind === 'between' ? '' : range;
  const span = search.get('span');
  return span === null || PRESETS.some(({ key }) => key === span) ? '' : given(['span']);
}

function parsed(text: string | null): number | null {
  if (text === null || !/(Z|[+-]\d\d:?\d\d)$/.test(text)) return null; // without a zone, it would differ between viewers
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : Math.round(at / 1000);
}

/** What an address contains for a window. */
export function parametersOf(window: Window): Parameters {
  if (window.kind === 'last') return { span: window.key === DEFAULT_PRESET ? null : window.key, from: null, to: null };
  return { span: null, from: iso(window.from), to: iso(window.to) };
}

/** RFC 3339 in UTC, without fractions: `2026-11-22T03:00:00Z`. */
export const iso = (at: number): string => `${new Date(at * 1000).toISOString().slice(0, 19)}Z`;

export function boundsOf(window: Window, now: number): [from: number, to: number] {
  return window.kind === 'last' ? [now - window.seconds, now] : [window.from, window.to];
}

/** From midnight to midnight in the viewer's zone: 23 or 25 hours when clocks change. */
export function yesterday(now: Date): Window {
  const midnight = (daysAgo: number): number =>
    new Date(now.getFullYear(), now.getMonth(), now.getDate() - daysAgo).getTime() / 1000;
  return { kind: 'between', from: midnight(1), to: midnight(0) };
}

/** A selected part; at least SHORTEST_S. */
export function selection(from: number, to: number): Window {
  const missing = Math.max(0, SHORTEST_S - (to - from));
  return { kind: 'between', from: Math.floor(from - missing / 2), to: Math.ceil(to + missing / 2) };
}

/** The window of the same length before (`-1`) or after (`1`) this one, as far as `now`. */
export function moved(window: Window, direction: -1 | 1, now: number): Window {
  const [from, to] = boundsOf(window, now);
  const by = direction === 1 ? Math.min(to - from, Math.max(0, now - to)) : from - to;
  return { kind: 'between', from: Math.round(from + by), to: Math.round(to + by) };
}

/** Twice as long around the same middle, but not beyond `now`. */
export function zoomedOut(window: Window, now: number): Window {
  const [from, to] = boundsOf(window, now);
  const length = Math.min(2 * (to - from), LONGEST_S);
  const end = Math.max(Math.min((from + to + length) / 2, now), to);
  return { kind: 'between', from: Math.round(end - length), to: Math.round(end) };
}

/** The value of a `datetime-local` input, in the viewer's zone: `2026-11-22T03:00`. */
export function inputOf(at: number): string {
  const date = new Date(at * 1000);
  const two = (value: number): string => String(value).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`;
}

export type Fault = { field: 'from' | 'to'; message: string };

/** The window between two `datetime-local` values, or what is wrong with them. */
export function between(from: string, to: string, now: number): Window | Fault {
  const [since, until] = [from, to].map((text) => new Date(text).getTime() / 1000) as [number, number];
  if (Number.isNaN(since)) return { field: 'from', message: 'A date and a time are needed.' };
  if (Number.isNaN(until)) return { field: 'to', message: 'A date and a time are needed.' };
  if (since >= now) return { field: 'from', message: 'This time is in the future.' };
  if (since >= until) return { field: 'to', message: 'The end must be after the beginning.' };
  if (until - since > LONGEST_S) return { field: 'from', message: 'At most 15 months can be shown.' };
  return { kind: 'between', from: since, to: until };
}
