/** Alerts and rules in words. */
import type { Alert, AlertMetric, AlertRule, Pending, RulePreview, Silence, Severity } from '../../../api/types';
import { bytes, clock, count, DASH, dateTime, duration, plural, rate, short } from '../../../format/format';
import { BAND_NAMES, metricOf } from '../../../alerts/rule';

export const TONES: Record<Severity, 'bad' | 'warn'> = { critical: 'bad', warning: 'warn' };

/** Seconds in the units of a form: `45 s`, `5 min`, `1 h 30 min`, `2 days`. */
export function span(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  const parts = [
    [Math.floor(seconds / 86_400), seconds < 172_800 ? 'day' : 'days'],
    [Math.floor((seconds % 86_400) / 3600), 'h'],
    [Math.floor((seconds % 3600) / 60), 'min'],
    [Math.round(seconds % 60), 's'],
  ].filter(([n]) => n !== 0);
  return parts.slice(0, 2).map((part) => part.join(' ')).join(' ');
}

/** An elapsed time in one unit: `49 s`, `12 min`, `3 h`, `2 days`. */
export function roughly(seconds: number): string {
  const s = Math.max(1, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172_800 ? `${Math.floor(s / 3600)} h` : plural(Math.floor(s / 86_400), 'day');
}

/** A value or threshold with its unit: `1,234 messages`, `5 min`, `12.3 KiB/s`. */
export function figure(value: number | null, unit: string): string {
  if (value === null) return DASH;
  if (unit === 's') return Number.isInteger(value) ? span(value) : duration(value * 1000);
  if (unit === '×') return `${short(value)} ×`;
  if (unit === 'bytes/s') return `${bytes(value)}/s`;
  if (unit.endsWith('/s')) return `${rate(value)} ${rate(value) === '1' ? unit.replace('s/s', '/s') : unit}`;
  return `${count(value)} ${value === 1 ? unit.replace(/s$/, '') : unit}`.trim();
}

type Condition = Pick<Alert, 'metric' | 'comparison' | 'threshold' | 'hold_s'>;

/** The result of a rule's preview, with counts; `lasting`: whether it would fire, after its hold time. */
export function previewOf({ matched, beyond, unknown, rows }: RulePreview, scope: Alert['scope'], unit: string): { text: string; lasting: boolean } {
  const lasting = beyond > 0;
  if (scope !== 'archive') {
    const of = unknown > 0 ? `; unknown for ${count(unknown)}` : '';
    return { text: `Would fire now for ${count(beyond)} of ${plural(matched, scope)}${of}`, lasting };
  }
  const value = rows[0]?.value ?? null;
  if (value === null) return { text: `The number of ${unit} is not known`, lasting };
  return { text: `Would ${lasting ? '' : 'not '}fire now: ${figure(value, unit)}`, lasting };
}

/** Whether it compares a figure with past weeks. */
export const isUnusual = ({ metric }: Pick<Alert, 'metric'>): boolean => metric.startsWith('unusual_');

/** `the 95 % band`, `the band of score 6`: of a rule that compares a figure with past weeks. */
export function bandOf(score: number): string {
  return `the ${BAND_NAMES.find((each) => each.score === score)?.name ?? `band of score ${short(score)}`}`;
}

/** How many of a rule's subjects have too little history; empty if it compares none with past weeks, or all have enough. */
export function pastWeeksOf({ past_weeks: weeks, scope, enabled }: Pick<AlertRule, 'past_weeks' | 'scope' | 'enabled'>): string {
  if (!weeks || !enabled) return '';
  if (weeks.error) return `Fires for none: ${weeks.error}`;
  if (weeks.found_at === null) return 'Past weeks are being read';
  if (weeks.short === 0) return '';
  return `${count(weeks.short)} of ${plural(weeks.matched, scope)} ${weeks.short === 1 ? 'has' : 'have'} fewer than ${weeks.least_weeks} past weeks to compare with`;
}

/** `above 100,000 messages for 5 min`; for a flag, `for 30 s`. Without the unit if `title` is the unit. */
export function conditionOf(of: Condition, unit: string, title = ''): string {
  const beyond = unit === '' ? '' : isUnusual(of) ? `${of.comparison} ${bandOf(of.threshold)} ` : `${of.comparison} ${unit === title.toLowerCase() ? count(of.threshold) : figure(of.threshold, unit)} `;
  return of.hold_s === 0 ? beyond.trim() || 'at once' : `${beyond}for ${span(of.hold_s)}`;
}

/** `above 100,000`, `above 5 min`: next to a value, which has the same unit, of an alert whose hold time is over. For a flag, its time. */
export function besideValue(of: Condition, unit: string): string {
  const isCounted = /^[a-z ]{2,}$/.test(unit);
  return unit === '' ? conditionOf(of, unit) : conditionOf({ ...of, hold_s: 0 }, unit, isCounted ? unit : '');
}

/** `Depth`, `Oldest age`; derived from the name until the platform's titles are loaded. */
export function titleOf(metrics: readonly AlertMetric[], of: Pick<Alert, 'scope' | 'metric'>): string {
  return metricOf(metrics, of.scope, of.metric)?.title ?? of.metric.replace(/_s$/, '').replaceAll('_', ' ');
}

/** `Depth above 100,000 messages for 5 min`, `Consumers below 1 for 2 min`. */
export function firesWhen(metrics: readonly AlertMetric[], of: Condition & Pick<Alert, 'scope'>, unit: string): string {
  const title = titleOf(metrics, of);
  return `${title} ${conditionOf(of, unit, title)}`;
}

/** The remaining time until it fires: `in 40 s`. A rule that has reached its limit of alerts fires no further ones. */
export function firesIn({ fires_at: at }: Pick<Pending, 'fires_at'>, now: number): string {
  if (at > now) return `in ${roughly((at - now) / 1000)}`;
  return now - at < 10_000 ? 'now' : 'when another is resolved';
}

/** The rule's subjects, from its patterns: `channels orders.* / *`, `all topics`. */
export function reachOf({ scope, topic_pattern: topic, channel_pattern: channel, node_pattern: node, objective_pattern: objective }: AlertRule): string {
  if (scope === 'objective') return objective === '*' ? 'all objectives' : `objectives ${objective}`;
  if (scope === 'archive') return 'the archive';
  if (scope === 'node') return node === '*' ? 'all nodes' : `nodes ${node}`;
  if (scope === 'topic') return topic === '*' ? 'all topics' : `topics ${topic}`;
  return topic === '*' && channel === '*' ? 'all channels' : `channels ${topic} / ${channel}`;
}

/** The silence's subjects: `Backlog, topic orders.*`. */
export function silencedBy(silence: Silence): string {
  const patterns = [
    silence.topic_pattern && `topic ${silence.topic_pattern}`,
    silence.channel_pattern && `channel ${silence.channel_pattern}`,
    silence.node_pattern && `node ${silence.node_pattern}`,
    silence.objective_pattern && `objective ${silence.objective_pattern}`,
  ].filter((text) => text !== '');
  return [silence.rule || 'Every rule', ...patterns].join(', ');
}

/** The time of day without seconds, with the date unless it is within 18 hours of now. */
export function until(at: number): string {
  return Math.abs(at - Date.now()) < 18 * 3_600_000 ? clock(at).slice(0, 5) : dateTime(at).slice(0, -3);
}

/** Why the alert was resolved. */
export function overWords(alert: Alert): string {
  return {
    '': '',
    cleared: 'within the threshold again',
    gone: 'no longer exists',
    closed: `closed by ${alert.resolved_by}`,
    rule: 'the rule was changed',
  }[alert.resolution];
}

/** Who acknowledged it, or until when it is silenced; otherwise empty. */
export function attendedWords(alert: Alert): string {
  if (alert.acknowledged_at !== null) return `${alert.acknowledged_by} since ${until(alert.acknowledged_at)}`;
  return alert.silenced_until === null ? '' : `silenced until ${until(alert.silenced_until)}`;
}
