import type { ActionOutcome, AuditEntry } from '../../api/types';

/** The tone of an outcome on one node. A node without the topic or channel did not fail. */
export function toneOfResult(outcome: string): 'ok' | 'warn' | 'bad' {
  if (outcome === 'done') return 'ok';
  return outcome === 'absent' ? 'warn' : 'bad';
}

/** Whether an action succeeded on at most one broker, so that a table of nodes is not needed. */
export function doneOnOneNode(answer: ActionOutcome): boolean {
  return answer.outcome === 'done' && answer.results.filter((result) => result.target === 'nsqd').length <= 1;
}

/** The tone of an entry of the audit trail. */
export function toneOfEntry(outcome: AuditEntry['outcome']): 'ok' | 'warn' | 'bad' | 'quiet' {
  if (outcome === 'running') return 'quiet';
  return outcome === 'done' ? 'ok' : outcome === 'partial' || outcome === 'refused' ? 'warn' : 'bad';
}

/** What became of an action on all nodes, in a line: for a user who has left its dialog. */
export function outcomeText(what: string, { outcome, results }: ActionOutcome): string {
  if (outcome === 'done') return `${what}: done.`;
  const failed = results.filter((result) => result.outcome !== 'done' && result.outcome !== 'absent');
  return `${what}: ${failed.map(({ node, detail }) => `${node}: ${detail}`).join('; ') || 'no node accepted it'}.`;
}
