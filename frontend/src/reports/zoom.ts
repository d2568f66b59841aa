/** The part of a report's period that its charts show. It is part of the address; times are Unix seconds. */

export type Zoom = readonly [from: number, to: number];

/** A shorter part is widened around its middle. */
export const SHORTEST_S = 60;

/**
 * The part of a period that charts show without a zoom: all of it, unless its first reading (Unix seconds) is in its second
 * half. On a new platform, minutes of readings would otherwise be a sliver at the end of an empty day.
 */
export function withReadings(period: Zoom, first: number | null): Zoom {
  return first !== null && first - period[0] > (period[1] - period[0]) / 2 && first < period[1] ? [first, period[1]] : period;
}

/** The part that an address names, as `1773446400-1773450000`; null for the whole period, also for an invalid text. */
export function zoomOf(text: string | null): Zoom | null {
  const match = /^(\d{1,11})-(\d{1,11})$/.exec(text ?? '');
  if (!match) return null;
  const [from, to] = [Number(match[1]), Number(match[2])];
  return from < to ? [from, to] : null;
}

export const textOf = (zoom: Zoom | null): string | null => (zoom === null ? null : `${Math.round(zoom[0])}-${Math.round(zoom[1])}`);

/** A part within the whole, at least SHORTEST_S long; null if it is the whole. */
export function within(whole: Zoom, [from, to]: Zoom): Zoom | null {
  const length = Math.max(to - from, SHORTEST_S);
  if (length >= whole[1] - whole[0]) return null;
  const start = Math.min(Math.max((from + to - length) / 2, whole[0]), whole[1] - length);
  return [Math.floor(start), Math.ceil(start + length)];
}

/** The part around the same middle that is `times` as long: 0.5 zooms in, 2 zooms out. */
export function scaled(whole: Zoom, zoom: Zoom | null, times: number): Zoom | null {
  const [from, to] = zoom ?? whole;
  const [middle, half] = [(from + to) / 2, ((to - from) * times) / 2];
  return within(whole, [middle - half, middle + half]);
}

/** The part moved by half its length to earlier (-1) or later (1) times. */
export function moved(whole: Zoom, zoom: Zoom, direction: -1 | 1): Zoom | null {
  const by = (direction * (zoom[1] - zoom[0])) / 2;
  return within(whole, [zoom[0] + by, zoom[1] + by]);
}
