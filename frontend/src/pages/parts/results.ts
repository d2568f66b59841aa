/** How the outcome of an action on one node is shown. A node that does not have the thing did not fail. */
export function toneOfResult(outcome: string): 'ok' | 'warn' | 'bad' {
  if (outcome === 'done') return 'ok';
  return outcome === 'absent' ? 'warn' : 'bad';
}
