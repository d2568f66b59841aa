import type { ActionOutcome } from '../../api/types';

/** The tone of an outcome on one node. A node without the topic or channel did not fail. */
export function toneOfResult(outcome: string): 'ok' | 'warn' | 'bad' {
  if (outcome === 'done') return 'ok';
  return outcome === 'absent' ? 'warn' : 'bad';
}

/** Whether an action succeeded, and concerned one broker at most: nothing is to be told apart. */
export function doneOnOneNode(answer: ActionOutcome): boolean {
  return answer.outcome === 'done' && answer.results.filter((result) => result.target === 'nsqd').length <= 1;
}
