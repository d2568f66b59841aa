import { inNextTask } from '../snapshot/tasks';

/**
 * A value computed from a source. When a member of the source changes, it is computed again in a separate task, so that
 * the change can be drawn first. Create it while a component initializes; it ends with the component.
 */
export class Deferred<Source extends object, Value> {
  value: Value;

  constructor(source: () => Source, compute: (source: Source) => Value) {
    let latest = source();
    this.value = $state.raw(compute(latest));
    $effect(() => {
      const next = source();
      if (hasSameMembers(next, latest)) return;
      latest = next;
      inNextTask(() => {
        if (latest === next) this.value = compute(next);
      });
    });
  }
}

function hasSameMembers<Source extends object>(one: Source, other: Source): boolean {
  return (Object.keys(one) as (keyof Source)[]).every((member) => one[member] === other[member]);
}
