import { flushSync } from 'svelte';
import { expect, test, vi } from 'vitest';
import { Deferred } from './deferred.svelte';

test('a deferred value is there at once, and follows its source in a separate task', async () => {
  let rows = $state.raw([1, 2]);
  const compute = vi.fn(({ of }: { of: number[] }) => of.length);
  const deferred = { made: undefined as Deferred<{ of: number[] }, number> | undefined };
  const end = $effect.root(() => {
    deferred.made = new Deferred(() => ({ of: rows }), compute);
  });
  flushSync();
  expect([deferred.made?.value, compute.mock.calls.length]).toEqual([2, 1]);
  rows = [1, 2, 3];
  flushSync();
  rows = [1, 2, 3, 4];
  flushSync();
  expect(deferred.made?.value).toBe(2);
  await vi.waitFor(() => expect(deferred.made?.value).toBe(4));
  expect(compute.mock.calls.length).toBe(2); // what was superseded is not computed
  end();
});
