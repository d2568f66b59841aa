import { inNextTask } from '../snapshot/idle';

/**
 * A value that is made again in a task of its own whenever its source changes, so that the rest of the page is drawn
 * without waiting for it. To be made by a component, with whose end it ends.
 */
export class Later<Source, Value> {
  value: Value;

  constructor(source: () => Source, make: (source: Source) => Value) {
    this.value = $state.raw(make(source()));
    let isFirst = true;
    $effect(() => {
      const changed = source();
      if (!isFirst) inNextTask(() => (this.value = make(changed)));
      isFirst = false;
    });
  }
}
