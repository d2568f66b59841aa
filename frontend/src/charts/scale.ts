/** Coordinates of values, and ranges of axes. */

/**
 * Points of a line through `values` in a box, oldest at the left; a gap (NaN or null) splits it into several lines.
 * The box's bottom is zero. With fewer than `span` values the line starts further right, so that the distance of points
 * stays the same while the history grows.
 */
export function linePoints(
  values: readonly (number | null)[],
  { width, height, span = values.length }: { width: number; height: number; span?: number },
): [number, number][][] {
  const known = values.filter((value): value is number => value !== null && !Number.isNaN(value));
  const peak = Math.max(0, ...known);
  const floor = Math.min(0, ...known);
  const range = peak - floor || 1;
  const step = span > 1 ? width / (span - 1) : 0;
  const left = width - step * (values.length - 1);
  const lines: [number, number][][] = [];
  let line: [number, number][] = [];
  values.forEach((value, i) => {
    if (value === null || Number.isNaN(value)) {
      if (line.length > 0) lines.push(line);
      line = [];
    } else {
      line.push([left + i * step, height - ((value - floor) / range) * height]);
    }
  });
  if (line.length > 0) lines.push(line);
  return lines;
}

/** An SVG path of these lines; a single point becomes a short stroke. */
export function linePath(lines: readonly (readonly [number, number][])[]): string {
  const at = ([x, y]: readonly [number, number]): string => `${round(x)} ${round(y)}`;
  return lines
    .map((line) => {
      const [first, ...rest] = line;
      if (!first) return '';
      return `M${at(first)}` + (rest.length > 0 ? rest.map((point) => `L${at(point)}`).join('') : 'h0.1');
    })
    .join('');
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/**
 * The range of a time axis in Unix seconds: a single point is in the middle of `alone` seconds, several points are at
 * the right of at least `shortest` seconds.
 */
export function timeRange(low: number, high: number, alone: number, shortest = 0): [number, number] {
  return high > low ? [Math.min(low, high - shortest), high] : [low - alone / 2, low + alone / 2];
}

const MINUTE_S = 60;
const HOUR_S = 60 * MINUTE_S;
const DAY_S = 24 * HOUR_S;
/**
 * Distances of the labels of a time axis, in seconds, each at most two and a half times the one before: with larger
 * steps, such as uPlot's from one minute to five, a narrow chart of eight minutes has a single label.
 */
export const TIME_STEPS_S = [
  ...[1, 2, 5, 10, 20, 30],
  ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * MINUTE_S),
  ...[1, 2, 4, 6, 12].map((hours) => hours * HOUR_S),
  ...[1, 2, 5, 10, 20, 40, 80].map((days) => days * DAY_S),
];

/** The range of a linear axis from zero to at least `least`, with space above the peak. */
export function zeroBased(low: number | null, high: number | null, least = 0): [number, number] {
  const peak = high ?? 0;
  return [Math.min(0, low ?? 0), Math.max(peak * 1.08, least) || 1];
}

/** The range of a logarithmic axis: whole powers of ten around the positive data. */
export function decades(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || high <= 0) return [1, 10];
  const bottom = 10 ** Math.floor(Math.log10(low > 0 ? low : high));
  const top = 10 ** Math.ceil(Math.log10(high));
  return [bottom, top > bottom ? top : bottom * 10];
}

/** The places of the known values between two gaps, which a line alone would not show. */
export function isolated(values: ArrayLike<number | null | undefined>): number[] {
  const places: number[] = [];
  for (let place = 0; place < values.length; place++)
    if (values[place] != null && values[place - 1] == null && values[place + 1] == null) places.push(place);
  return places;
}

/** Whether a line has a value: `columns` are the times, then one column for each line. */
export const hasNumbers = ([, ...lines]: readonly (readonly (number | null)[])[]): boolean =>
  lines.some((line) => line.some((value) => value !== null && !Number.isNaN(value)));

/** Whether a value is a power of ten: 0.1, 1, 10. */
export const isDecade = (value: number): boolean => Number.isInteger(Math.round(Math.log10(value) * 1e9) / 1e9);
