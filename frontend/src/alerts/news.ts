/** Alerts that began to fire, in words. */
import type { Alert } from '../api/types';
import { plural } from '../format/format';
import { byUrgency, subjectOf } from './alerts';

/** `Critical: Backlog: orders / billing`, or `5 alerts fire: Backlog (3), No consumers (2)`. */
export function newsOf(alerts: readonly Alert[]): string {
  const [only] = alerts;
  if (only && alerts.length === 1) return `${only.severity === 'critical' ? 'Critical' : 'Warning'}: ${only.rule}: ${subjectOf(only)}`;
  const rules = new Map<string, number>();
  for (const alert of [...alerts].sort(byUrgency)) rules.set(alert.rule, (rules.get(alert.rule) ?? 0) + 1);
  const named = [...rules].slice(0, 3).map(([rule, count]) => (count === 1 ? rule : `${rule} (${count})`));
  return `${plural(alerts.length, 'alert')} fire: ${named.join(', ')}${rules.size > 3 ? ' and others' : ''}`;
}
