/** The tone of an outcome on one node. A node without the topic or channel did not fail. */
export function toneOfResult(outcome: string): 'ok' | 'warn' | 'bad' {
  if (outcome === 'done') return 'ok';
  return outcome === 'absent' ? 'warn' : 'bad';
}
