import { expect, test } from 'vitest';
import { History } from '../history/history';
import { HistoryStore } from './history.svelte';

test('a history that could not be loaded is requested again', async () => {
  const requested: number[] = [];
  const store = new HistoryStore({ scope: 'cluster' }, ['depth'], { kind: 'last', key: '1h', seconds: 3600 }, async () => {
    requested.push(requested.length);
    if (requested.length === 1) throw new Error('503');
    return { stepSeconds: 10, columns: [[4000], [7]] };
  });
  const history = new History();
  for (const now of [5000, 5010, 5031, 5032]) {
    store.columns(history, 'cluster:', now);
    await Promise.resolve().then(() => undefined).then(() => undefined);
  }
  expect(requested).toEqual([0, 1]);
  expect(store.error).toBeNull();
  expect(store.isLoaded).toBe(true);
});
