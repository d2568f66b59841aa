/** The form of an alert rule, in readable units, and its request. */
import type { AlertMetric, AlertRule, AlertRuleRequest } from '../api/types';
import { plural } from '../format/format';

export type Unit = { name: string; size: number };

export const TIMES: readonly Unit[] = [
  { name: 'seconds', size: 1 },
  { name: 'minutes', size: 60 },
  { name: 'hours', size: 3600 },
  { name: 'days', size: 86_400 },
];
const BYTE_RATES: readonly Unit[] = [
  { name: 'B/s', size: 1 },
  { name: 'KiB/s', size: 1024 },
  { name: 'MiB/s', size: 1024 ** 2 },
  { name: 'GiB/s', size: 1024 ** 3 },
];

/** Names of bands by their scores, and short ones: the share of usual hours that they have. */
export const BAND_NAMES: readonly { score: number; name: string; short: string }[] = [
  { score: 1.28, name: '80 % band', short: '80 %' },
  { score: 1.96, name: '95 % band', short: '95 %' },
  { score: 4, name: 'band of score 4', short: 'reports' },
];

/** The unit of a metric's thresholds: a score for one that is compared with past weeks. */
export const thresholdUnitOf = (metric: AlertMetric | undefined): string => (metric?.is_anomaly ? 'score' : (metric?.unit ?? ''));

/** The comparison of a rule whose metric was changed: only past weeks give a band to be outside of. */
export function comparisonOf(metric: AlertMetric | undefined, before: AlertRule['comparison']): AlertRule['comparison'] {
  if (metric?.is_anomaly) return 'outside';
  return before === 'outside' ? 'above' : before;
}

/** The units in which a threshold of this unit can be entered. */
export function unitsOf(unit: string): readonly Unit[] {
  if (unit === 's') return TIMES;
  if (unit === 'bytes/s') return BYTE_RATES;
  return [{ name: unit, size: 1 }];
}

const USUAL: Readonly<Record<string, number>> = { messages: 10_000, s: 300, 'bytes/s': 1024 ** 2, 'damaged files': 0, '×': 14.4, score: 4 };
/** The initial threshold. */
export const usualOf = (unit: string): number => USUAL[unit] ?? 1;

/** A number and the largest unit in which it is a whole one. */
export type Amount = { text: string; unit: string };

export function amountOf(value: number, units: readonly Unit[]): Amount {
  const unit = (value > 0 ? units.findLast(({ size }) => value % size === 0) : undefined) ?? (units[0] as Unit);
  return { text: String(value / unit.size), unit: unit.name };
}

/** `2.5`, `100000`, `100,000`, `100k`, `1.5M`; null for anything else. A comma only separates thousands. */
export function parseNumber(text: string): number | null {
  const [, digits, suffix] = /^\s*(\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+)\s*([kKMG]?)\s*$/.exec(text) ?? [];
  if (digits === undefined) return null;
  return Number(digits.replaceAll(',', '')) * { k: 1e3, K: 1e3, M: 1e6, G: 1e9, '': 1 }[suffix as 'k' | ''];
}

/** The value in the smallest unit; null if it is not a number. */
export function valueOf(amount: Amount, units: readonly Unit[]): number | null {
  const value = parseNumber(amount.text);
  const size = units.find(({ name }) => name === amount.unit)?.size ?? 1;
  return value === null ? null : value * size;
}

export type RuleForm = {
  name: string;
  description: string;
  enabled: boolean;
  severity: AlertRule['severity'];
  scope: AlertRule['scope'];
  metric: string;
  comparison: AlertRule['comparison'];
  threshold: Amount;
  topic: string;
  channel: string;
  node: string;
  objective: string;
  hold: Amount;
  resolveAfter: Amount;
  repeats: boolean;
  repeat: Amount;
  notifiers: string[];
};

export const FIELDS = [
  ...['name', 'description', 'severity', 'scope', 'metric', 'comparison', 'threshold', 'topic_pattern', 'channel_pattern'],
  ...['node_pattern', 'objective_pattern', 'hold_s', 'resolve_after_s', 'repeat_s', 'notifiers'],
] as const;

const LONGEST_S = 7 * 86_400;

export const metricOf = (metrics: readonly AlertMetric[], scope: string, name: string): AlertMetric | undefined =>
  metrics.find((metric) => metric.scope === scope && metric.name === name);

/** The form of a rule, or of a new one. */
export function ruleFormOf(rule: AlertRuleRequest | null, metrics: readonly AlertMetric[]): RuleForm {
  const scope = rule?.scope ?? 'channel';
  const metric = rule?.metric ?? 'depth';
  return {
    name: rule?.name ?? '',
    description: rule?.description ?? '',
    enabled: rule?.enabled ?? true,
    severity: rule?.severity ?? 'warning',
    scope,
    metric,
    comparison: rule?.comparison ?? 'above',
    threshold: amountOf(rule?.threshold ?? usualOf('messages'), unitsOf(thresholdUnitOf(metricOf(metrics, scope, metric)))),
    topic: rule?.topic_pattern ?? '*',
    channel: rule?.channel_pattern ?? '*',
    node: rule?.node_pattern ?? '*',
    objective: rule?.objective_pattern ?? '*',
    hold: amountOf(rule?.hold_s ?? 60, TIMES),
    resolveAfter: amountOf(rule?.resolve_after_s ?? 30, TIMES),
    repeats: (rule?.repeat_s ?? null) !== null,
    repeat: amountOf(rule?.repeat_s ?? 3600, TIMES),
    notifiers: [...(rule?.notifiers ?? [])],
  };
}

/** The form's request, or the errors by the request's fields. */
export function ruleRequestOf(
  form: RuleForm,
  metrics: readonly AlertMetric[],
): { request: AlertRuleRequest } | { faults: Record<string, string> } {
  const faults: Record<string, string> = {};
  const metric = metricOf(metrics, form.scope, form.metric);
  if (form.name.trim() === '') faults['name'] = 'Give the rule a name.';
  let threshold: number | null = 0;
  if (!metric?.is_flag) {
    threshold = valueOf(form.threshold, unitsOf(thresholdUnitOf(metric)));
    if (threshold === null) faults['threshold'] = 'A number is needed, such as 10000, 10k or 2.5.';
  }
  const seconds = (field: string, amount: Amount, least: number): number => {
    const value = valueOf(amount, TIMES);
    if (value === null || !Number.isInteger(value)) faults[field] = 'A whole number of seconds, minutes or hours is needed.';
    else if (value < least) faults[field] = `At least ${plural(least, 'second')}.`;
    else if (value > LONGEST_S) faults[field] = 'At most 7 days.';
    return value ?? 0;
  };
  const request: AlertRuleRequest = {
    name: form.name.trim(),
    description: form.description.trim(),
    enabled: form.enabled,
    severity: form.severity,
    scope: form.scope,
    metric: form.metric,
    comparison: metric?.is_flag ? 'above' : form.comparison,
    threshold: threshold ?? 0,
    topic_pattern: form.scope === 'topic' || form.scope === 'channel' ? form.topic.trim() || '*' : '*',
    channel_pattern: form.scope === 'channel' ? form.channel.trim() || '*' : '*',
    node_pattern: form.scope === 'node' ? form.node.trim() || '*' : '*',
    objective_pattern: form.scope === 'objective' ? form.objective.trim() || '*' : '*',
    hold_s: seconds('hold_s', form.hold, 0),
    resolve_after_s: seconds('resolve_after_s', form.resolveAfter, 0),
    repeat_s: form.repeats ? seconds('repeat_s', form.repeat, 60) : null,
    notifiers: [...form.notifiers],
  };
  return Object.keys(faults).length > 0 ? { faults } : { request };
}
