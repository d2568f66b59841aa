import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { FoundClients } from '../api/types';
import { ClientSearch, type AskClients } from './clients.svelte';

const found = (listed: number): FoundClients => ({ total: 9, found: 9, clients: Array(listed).fill({}), unanswered: [] });
const question = { query: '', order: 'topic', descending: false } as const;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('document', { hidden: false, addEventListener: () => {}, removeEventListener: () => {} });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('the first hundred clients are shown before the others are requested', async () => {
  const ask = vi.fn<AskClients>(async ({ limit }) => found(limit === 100 ? 2 : 9));
  const search = new ClientSearch(ask);
  const stop = search.follow(question, () => true);
  await vi.advanceTimersByTimeAsync(0);
  expect(ask.mock.calls.map(([{ limit }]) => limit)).toEqual([100, 1000]);
  expect(search.answer?.clients).toHaveLength(9);
  await vi.advanceTimersByTimeAsync(5000);
  expect(ask.mock.calls.map(([{ limit }]) => limit)).toEqual([100, 1000, 1000]);
  stop();
});

test('a first answer with all clients is the only one', async () => {
  const ask = vi.fn<AskClients>(async () => found(9));
  const stop = new ClientSearch(ask).follow(question, () => true);
  await vi.advanceTimersByTimeAsync(0);
  expect(ask).toHaveBeenCalledOnce();
  stop();
});
