/** Subjects and order of alerts, and the alerts of each row on other pages. */
import type { Alert, Severity } from '../api/types';
import { backlogOf, channelKey, type ClusterSnapshot } from '../snapshot/snapshot';
import type { Route } from '../navigation/routes';

type Subject = Pick<Alert, 'topic' | 'channel' | 'node' | 'objective'>;

/** The subject's name on all pages: `orders / billing`, `orders`, `10.0.0.7:4151`, an objective's; `archive` without a name. */
export function subjectOf({ topic, channel, node, objective }: Subject): string {
  return node || objective || (channel ? `${topic} / ${channel}` : topic || 'archive');
}

/** The page of the subject; an objective's is the list of all; the archive's is the reports', whose maintenance runs list its damaged files. */
export function routeOf({ topic, channel, node, objective }: Subject): Route {
  if (objective) return { page: 'objectives' };
  if (!node && !topic) return { page: 'reports' };
  if (node) return { page: 'node', node };
  return channel ? { page: 'channel', topic, channel } : { page: 'topic', topic };
}

/** Whether the alert is acknowledged or silenced. */
export const isAttended = (alert: Alert): boolean => alert.acknowledged_at !== null || alert.silenced_until !== null;

/** Order: unattended alerts first, then critical ones, then the newest. */
export function byUrgency(a: Alert, b: Alert): number {
  return (
    Number(isAttended(a)) - Number(isAttended(b)) ||
    Number(b.severity === 'critical') - Number(a.severity === 'critical') ||
    b.fired_at - a.fired_at ||
    b.id - a.id
  );
}

/** The firing alerts of a topic, channel or node, the most urgent first. */
export type Mark = { severity: Severity; attended: boolean; alerts: readonly Alert[] };
/** By a topic's name (its channels' alerts too), a channel's key, a node's id. */
export type Marks = { topics: ReadonlyMap<string, Mark>; channels: ReadonlyMap<string, Mark>; nodes: ReadonlyMap<string, Mark> };

export function marksOf(alerts: Iterable<Alert>): Marks {
  const found = { topics: new Map<string, Alert[]>(), channels: new Map<string, Alert[]>(), nodes: new Map<string, Alert[]>() };
  const add = (table: Map<string, Alert[]>, key: string, alert: Alert): void => {
    const there = table.get(key);
    if (there) there.push(alert);
    else table.set(key, [alert]);
  };
  for (const alert of alerts) {
    if (alert.node) add(found.nodes, alert.node, alert);
    if (alert.topic) add(found.topics, alert.topic, alert);
    if (alert.channel) add(found.channels, channelKey({ topic: alert.topic, name: alert.channel }), alert);
  }
  const marks = (table: Map<string, Alert[]>): Map<string, Mark> =>
    new Map(
      [...table].map(([key, those]): [string, Mark] => {
        const sorted = those.sort(byUrgency);
        const first = sorted[0] as Alert;
        return [key, { severity: first.severity, attended: isAttended(first), alerts: sorted }];
      }),
    );
  return { topics: marks(found.topics), channels: marks(found.channels), nodes: marks(found.nodes) };
}

/** The metric's current value in its unit; null if the snapshot does not have it. */
export function liveValue(alert: Pick<Alert, 'scope' | 'metric'> & Subject, snapshot: ClusterSnapshot | null): number | null {
  if (snapshot === null || alert.scope === 'archive' || alert.scope === 'objective') return null;
  const row =
    alert.scope === 'node'
      ? snapshot.nodes.get(alert.node)
      : alert.scope === 'topic'
        ? snapshot.topics.get(alert.topic)
        : snapshot.channels.get(channelKey({ topic: alert.topic, name: alert.channel }));
  if (row === undefined) return null;
  if (alert.metric === 'oldest_age_s') return 'oldest_age_ms' in row && row.oldest_age_ms !== null ? row.oldest_age_ms / 1000 : null;
  if (alert.scope === 'topic' && alert.metric === 'depth') return backlogOf(snapshot).get(alert.topic) ?? null;
  const value = (row as Record<string, unknown>)[alert.metric.replace(/^unusual_/, '')];
  return typeof value === 'number' ? value : null;
}

/** A glob that matches only this name. */
export const globOf = (name: string): string => name.replace(/[[*?]/g, '[$&]');
