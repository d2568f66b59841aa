import { describe, expect, it } from 'vitest';
import { SearchStore } from './search.svelte';

const counts = { searched: 500, total: 900, matching: 1, withheld: 0 };
const found = { node: 'a', id: '01', body: '' };

function stream(pieces: readonly string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
      controller.close();
    },
  });
}

describe('a search', () => {
  it('reads lines that arrive in any pieces, to the end', async () => {
    const text = [{ type: 'message', message: found }, { type: 'progress', ...counts }, { type: 'end', reason: 'complete', nodes: [], ...counts }]
      .map((each) => JSON.stringify(each) + '\n')
      .join('');
    const store = new SearchStore(() => Promise.resolve(stream([text.slice(0, 30), text.slice(30, 31), text.slice(31)])));
    await store.start({});
    expect(store.messages).toEqual([found]);
    expect(store.state).toMatchObject({ status: 'ended', end: { searched: 500, reason: 'complete' } });
  });

  it('has failed if the connection closes before the end', async () => {
    const store = new SearchStore(() => Promise.resolve(stream([`${JSON.stringify({ type: 'progress', ...counts })}\n`])));
    await store.start({});
    expect(store.state).toMatchObject({ status: 'failed' });
  });

  it('stops, and keeps what it has found', async () => {
    let opened: AbortSignal | null = null;
    const store = new SearchStore((_, signal) => {
      opened = signal;
      return new Promise(() => undefined);
    });
    void store.start({});
    store.stop();
    expect(opened!.aborted).toBe(true);
    expect(store.state.status).toBe('stopped');
  });
});
