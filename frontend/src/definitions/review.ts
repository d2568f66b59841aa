/** What an import of definitions changes, in numbers and words. */
import type { DefinitionChange } from '../api/types';
import { count, plural } from '../format/format';

export type Numbers = { create: number; change: number; remove: number; keep: number; failed: number; messages: number };

/** The number of changes of each kind, and of the messages that removals delete. */
export function numbersOf(changes: readonly DefinitionChange[]): Numbers {
  const numbers: Numbers = { create: 0, change: 0, remove: 0, keep: 0, failed: 0, messages: 0 };
  for (const change of changes) {
    numbers[change.verb] += 1;
    numbers.messages += change.messages;
    if (change.outcome === 'failed' || change.outcome === 'partial') numbers.failed += 1;
  }
  return numbers;
}

/** Such as `2 to create, 1 to change, 14 unchanged`. */
export function summaryOf({ create, change, remove, keep }: Numbers, unchanged: number): string {
  const parts = [
    [create, 'to create'],
    [change, 'to change'],
    [remove, 'to remove'],
    [unchanged, 'unchanged'],
    [keep, 'not in the file'],
  ] as const;
  const named = parts.filter(([number]) => number > 0).map(([number, what]) => `${count(number)} ${what}`);
  return named.length === 0 ? 'The file defines nothing' : named.join(', ');
}

/** What removals cost; empty without any. */
export function costOf({ remove, messages }: Numbers): string {
  if (remove === 0) return '';
  return `Removes ${plural(remove, 'definition')}${messages > 0 ? `, and deletes ${plural(messages, 'message')}` : ''}. This cannot be undone.`;
}

const NOUNS: Record<DefinitionChange['section'], string> = {
  topics: 'Topic',
  channels: 'Channel',
  notifiers: 'Notifier',
  objectives: 'Objective',
  rules: 'Alert rule',
  silences: 'Silence',
  schedules: 'Schedule',
  policies: 'Policy',
  masks: 'Mask',
  views: 'View',
  people: 'Person',
};

export const nounOf = (change: DefinitionChange): string => NOUNS[change.section];

/** The changes that are made, then those that are only noted; otherwise in their order. */
export function inOrder(changes: readonly DefinitionChange[]): DefinitionChange[] {
  return [...changes.filter((change) => change.verb !== 'keep'), ...changes.filter((change) => change.verb === 'keep')];
}

/** Why a change failed in whole or in part; empty if it did not. */
export function failureOf(change: DefinitionChange): string {
  if (change.outcome !== 'failed' && change.outcome !== 'partial') return '';
  const servers = change.results.filter((each) => each.outcome !== 'done' && each.outcome !== 'absent');
  return [change.detail, ...servers.map((each) => `${each.target} ${each.node}: ${each.detail || each.outcome}`)].filter((text) => text !== '').join('; ');
}

/** The text of a file; null if it is not UTF-8. */
export function textOf(bytes: ArrayBuffer): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** What an answer with this HTTP status says about the import; 0: there was no answer. */
export function failureTitle(status: number, dryRun: boolean): string {
  if (status >= 400 && status < 500) return 'The file is refused; nothing was changed';
  return dryRun ? 'The file could not be checked; nothing was changed' : 'The import failed; check again to see what it has changed';
}
