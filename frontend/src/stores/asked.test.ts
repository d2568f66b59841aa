import { afterEach, describe, expect, test, vi } from 'vitest';
import type { BulkAction, BulkTarget } from '../api/types';
import { ActionStore } from './actions.svelte';
import { BulkStore } from './bulk.svelte';

afterEach(() => vi.unstubAllGlobals());

/** An API whose requests are answered by hand. */
function waiting() {
  const asked: ((status: number, body: unknown) => void)[] = [];
  vi.stubGlobal('document', { cookie: '' });
  vi.stubGlobal('fetch', () => new Promise<Response>((resolve) => asked.push((status, body) => resolve(new Response(JSON.stringify(body), { status })))));
  return async (at: number, status: number, body: unknown): Promise<void> => (await vi.waitFor(() => asked[at] ?? Promise.reject(new Error('not asked'))))(status, body);
}
const DONE = { outcome: 'done', results: [] };

describe('the dialog of an action', () => {
  test('shows the outcome', async () => {
    const answer = waiting();
    const store = new ActionStore();
    store.ask({ action: 'pause', topic: 'orders' });
    const confirmed = store.confirm();
    await answer(0, 200, DONE);
    expect(await confirmed).toBeNull();
    expect(store.asked).toMatchObject({ step: 'answered', answer: DONE });
  });

  test('stays open for what it was opened for when the outcome of an earlier action arrives', async () => {
    const answer = waiting();
    const store = new ActionStore();
    store.ask({ action: 'pause', topic: 'orders' });
    const confirmed = store.confirm();
    store.close();
    store.ask({ action: 'delete', topic: 'mails' });
    await answer(0, 200, DONE);
    expect(await confirmed).toMatchObject({ request: { topic: 'orders' }, answer: DONE });
    expect(store.asked).toMatchObject({ step: 'asking', request: { action: 'delete', topic: 'mails' } });
  });

  test('stays closed when a failure arrives', async () => {
    const answer = waiting();
    const store = new ActionStore();
    store.ask({ action: 'pause', topic: 'orders' });
    const confirmed = store.confirm();
    store.close();
    await answer(0, 503, { message: 'no node answers' });
    expect(await confirmed).toMatchObject({ request: { topic: 'orders' }, error: 'No node answers.' });
    expect(store.asked).toEqual({ step: 'closed' });
  });
});

describe('the dialog of an action on many', () => {
  const TARGETS: BulkTarget[] = [{ topic: 'orders' }];

  /** A store whose job is started by hand. */
  function started() {
    let end!: () => void;
    let refuse!: (why: Error) => void;
    const start = (_: BulkAction, __: readonly BulkTarget[]): Promise<void> => new Promise((resolve, reject) => ([end, refuse] = [resolve, reject]));
    return { store: new BulkStore(start), end: () => end(), refuse: (why: string) => refuse(new Error(why)) };
  }

  test('closes when Escape is pressed during the request, and a refusal does not open it again', async () => {
    const { store, refuse } = started();
    store.ask('pause', TARGETS);
    const confirmed = store.confirm();
    store.close();
    expect(store.asked).toEqual({ step: 'closed' });
    refuse('too many jobs');
    await expect(confirmed).rejects.toThrow('too many jobs');
    expect(store.asked).toEqual({ step: 'closed' });
  });

  test('stays open for what it was opened for when an earlier job has started', async () => {
    const { store, end } = started();
    store.ask('pause', TARGETS);
    const confirmed = store.confirm();
    store.close();
    store.ask('delete', TARGETS);
    end();
    await confirmed;
    expect(store.asked).toMatchObject({ step: 'asking', action: 'delete' });
  });
});
