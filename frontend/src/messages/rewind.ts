/** The choices of the rewind dialog, and the time of each. */

const MINUTE_MS = 60_000;

export const REACHES = [
  { key: '10m', title: '10 minutes ago', ms: 10 * MINUTE_MS },
  { key: '1h', title: '1 hour ago', ms: 60 * MINUTE_MS },
  { key: '6h', title: '6 hours ago', ms: 6 * 60 * MINUTE_MS },
  { key: '1d', title: '1 day ago', ms: 24 * 60 * MINUTE_MS },
  { key: '7d', title: '7 days ago', ms: 7 * 24 * 60 * MINUTE_MS },
  { key: 'at', title: 'A point in time…', ms: null },
] as const;

/** The time of a choice; `typed` is the value of a datetime-local input, in the viewer's zone, for the last choice. */
export function sinceOf(reach: string, typed: string, now: Date): { at: Date } | { fault: string } {
  const chosen = REACHES.find((each) => each.key === reach);
  if (chosen?.ms != null) return { at: new Date(now.getTime() - chosen.ms) };
  const at = new Date(typed);
  if (typed === '' || Number.isNaN(at.getTime())) return { fault: 'A date and a time are needed.' };
  if (at > now) return { fault: 'This time is in the future.' };
  return { at };
}
