/** Objectives: their form and its request, their states, and their descriptions. */
import { parseNumber } from '../alerts/rule';
import type { Burn, Objective, ObjectiveRequest } from '../api/types';
import { count, DASH, plural, short } from '../format/format';

export type ObjectiveForm = {
  name: string;
  kind: ObjectiveRequest['kind'];
  threshold: string;
  target: string;
  days: string;
  topic: string;
  channel: string;
};

export const FIELDS = ['name', 'kind', 'threshold_ms', 'target_percent', 'window_days', 'topic_pattern', 'channel_pattern'] as const;

/** The form of an objective, or of a new one. */
export function objectiveFormOf(objective: Objective | null): ObjectiveForm {
  return {
    name: objective?.name ?? '',
    kind: objective?.kind ?? 'latency',
    threshold: String(objective?.threshold_ms ?? 1000),
    target: String(objective?.target_percent ?? 99.9),
    days: String(objective?.window_days ?? 30),
    topic: objective?.topic_pattern ?? '*',
    channel: objective?.channel_pattern ?? '*',
  };
}

/** The API's limit: one bad message in a million. */
const MAX_TARGET_PERCENT = 99.9999;

/** The form's request, or the errors by the request's fields. */
export function objectiveRequestOf(form: ObjectiveForm): { request: ObjectiveRequest } | { faults: Record<string, string> } {
  const faults: Record<string, string> = {};
  const [threshold, target, days] = [parseNumber(form.threshold), parseNumber(form.target), parseNumber(form.days)];
  if (form.name.trim() === '') faults['name'] = 'Give the objective a name.';
  if (form.kind === 'latency' && (threshold === null || threshold < 0.001)) faults['threshold_ms'] = 'Enter milliseconds, such as 250 or 1,000.';
  if (target === null || target <= 0 || target > MAX_TARGET_PERCENT) faults['target_percent'] = `Enter a number above 0 and at most ${MAX_TARGET_PERCENT}, such as 99.9.`;
  if (days === null || !Number.isInteger(days) || days < 1 || days > 90) faults['window_days'] = 'Enter a whole number from 1 to 90.';
  const request: ObjectiveRequest = {
    name: form.name.trim(),
    kind: form.kind,
    threshold_ms: form.kind === 'latency' ? threshold : null,
    target_percent: target ?? 0,
    window_days: days ?? 0,
    topic_pattern: form.topic.trim() || '*',
    channel_pattern: form.channel.trim() || '*',
  };
  return Object.keys(faults).length > 0 ? { faults } : { request };
}

const BUCKETS_PER_OCTAVE = 32;
const LEAST_MS = 0.001;

/** The upper bound of the histogram's bucket that contains a latency, as nsqwire/histogram.py defines it. */
export function limitMs(thresholdMs: number): number {
  if (thresholdMs <= LEAST_MS) return LEAST_MS;
  const bucket = Math.ceil(Math.log2(thresholdMs * 1e6) * BUCKETS_PER_OCTAVE - 1e-9);
  return Math.floor(2 ** (bucket / BUCKETS_PER_OCTAVE) + 1e-6) / 1e6;
}

/** Whether a change of the objective to this request deletes its counts. */
export function startsAgain(objective: Objective, request: ObjectiveRequest): boolean {
  return (['kind', 'threshold_ms', 'topic_pattern', 'channel_pattern'] as const).some((name) => objective[name] !== request[name]);
}

/** `250 ms`, `1 s`, `1.02 s`: at most four digits. */
export function msText(ms: number): string {
  return ms < 1000 ? `${Number(ms.toPrecision(4))} ms` : `${Number((ms / 1000).toPrecision(4))} s`;
}

/** `99.9 % of messages within 250 ms over 30 days`, `99 % of deliveries succeed over 7 days`. */
export function aimOf({ kind, threshold_ms, target_percent, window_days }: Objective): string {
  const what = kind === 'latency' ? `of messages within ${msText(threshold_ms ?? 0)}` : 'of deliveries succeed';
  return `${target_percent} % ${what} over ${plural(window_days, 'day')}`;
}

/** `all channels`, `channels orders.* / *`. */
export function reachOf({ topic_pattern: topic, channel_pattern: channel }: Pick<Objective, 'topic_pattern' | 'channel_pattern'>): string {
  return topic === '*' && channel === '*' ? 'all channels' : `channels ${topic} / ${channel}`;
}

const isAbove = (rate: number | null, limit: number): boolean => rate !== null && rate > limit;
/** Whether both rates of a pair are above its limit. */
export const isBurning = ({ long_rate, short_rate, limit }: Burn): boolean => isAbove(long_rate, limit) && isAbove(short_rate, limit);

export type State = { text: string; tone: 'ok' | 'warn' | 'bad' | 'quiet' };

/** The objective's state. `burning`: a pair's rates are above its limit; for the slowest pair, at which the budget lasts for weeks, a warning. */
export function stateOf(objective: Objective): State {
  if (objective.counted_since === null) return { text: 'not counted yet', tone: 'quiet' };
  const burning = objective.burns.findIndex(isBurning);
  if (burning >= 0) return { text: 'burning', tone: burning < 2 ? 'bad' : 'warn' };
  if (objective.left_percent === null) return { text: 'no messages', tone: 'quiet' };
  return objective.left_percent < 0 ? { text: 'budget spent', tone: 'bad' } : { text: 'met', tone: 'ok' };
}

export const SPANS: Readonly<Record<string, string>> = { '5m': '5 min', '30m': '30 min', '1h': '1 h', '6h': '6 h', '3d': '3 days' };

/** `0.2 ×`, `14.4 ×`. */
export const rateText = (rate: number | null): string => (rate === null ? DASH : `${short(rate)} ×`);

/** `87.5 %`, `−120 %`, with the typographic minus sign. */
export function leftText(percent: number | null): string {
  if (percent === null) return DASH;
  const text = Math.abs(percent) >= 999.5 ? count(Math.round(Math.abs(percent))) : short(Math.abs(percent));
  return `${percent < 0 && text !== '0' ? '−' : ''}${text} %`;
}

/** `12 of 120 bad messages are left`; the numbers are rounded down, which never overstates the budget. */
export function leftWords({ allowed, left }: Pick<Objective, 'allowed' | 'left'>): string {
  const whole = Math.floor(left);
  const most = Math.floor(allowed);
  return whole >= 0 ? `${count(whole)} of ${plural(most, 'bad message')} left` : `${plural(-whole, 'more bad message')} than the ${count(most)} allowed`;
}

/** How long the budget lasts from now at a burn rate; null if it is spent already, or not used up within the window. */
export function lastsMs({ left, allowed, window_days }: Pick<Objective, 'left' | 'allowed' | 'window_days'>, rate: number | null): number | null {
  if (rate === null || rate <= 0 || left <= 0 || allowed <= 0) return null;
  const ms = ((left / allowed) * window_days * 86_400_000) / rate;
  return ms <= window_days * 86_400_000 ? ms : null;
}
