import { describe, expect, it } from 'vitest';
import type { TailMessage } from '../api/types';
import type { TailConnect } from '../api/tail';
import { TailStore } from './tail.svelte';

type Events = Parameters<TailConnect>[0];

function joined(): { store: TailStore; sent: object[]; say: (message: TailMessage) => void; events: () => Events } {
  const sent: object[] = [];
  let events: Events | null = null;
  const store = new TailStore((given) => {
    events = given;
    return { send: (message) => sent.push(message), close: () => {} };
  }, 'orders');
  store.start();
  events!.opened();
  return { store, sent, say: (message) => events!.message(message), events: () => events! };
}

const message = (id: string) => ({ node: 'n', id, timestamp: 1, attempts: 1, size: 1, body: 'eA==', truncated: false, visibility: 'whole' as const, headers: {} });

describe('a tail', () => {
  it('shows the newest first and adds up what was skipped', () => {
    const { store, say } = joined();
    say({ type: 'started', topic: 'orders', channel: 'tail-1#ephemeral' });
    say({ type: 'messages', messages: [message('a'), message('b')], skipped: 3, nodes: 2 });
    say({ type: 'messages', messages: [message('c')], skipped: 4, nodes: 2 });
    expect(store.messages.map((each) => each.id)).toEqual(['c', 'b', 'a']);
    expect([store.skipped, store.nodes, store.state.status]).toEqual([7, 2, 'running']);
  });
  it('does not change while it is paused', () => {
    const { store, sent, say } = joined();
    say({ type: 'started', topic: 'orders', channel: 'tail-1#ephemeral' });
    store.pause();
    say({ type: 'messages', messages: [message('late')], skipped: 2, nodes: 1 });
    expect([store.messages.length, store.skipped, sent.at(-1)]).toEqual([0, 3, { type: 'pause' }]);
  });
  it('says why the platform ended it', () => {
    for (const [code, reason] of [
      [4403, 'Your account may no longer read the messages of this topic.'],
      [4401, 'You are signed out.'],
      [1006, 'The connection to the platform is lost.'],
    ] as const) {
      const { store, say, events } = joined();
      say({ type: 'started', topic: 'orders', channel: 'tail-1#ephemeral' });
      events().closed(code);
      expect(store.state).toEqual({ status: 'failed', message: reason });
    }
  });
  it('keeps a bounded number', () => {
    const { store, say } = joined();
    for (let n = 0; n < 60; n += 1) say({ type: 'messages', messages: Array.from({ length: 20 }, (_, k) => message(`${n}-${k}`)), skipped: 0, nodes: 1 });
    expect(store.messages).toHaveLength(500);
    expect(store.messages[0]?.id).toBe('59-19');
  });
  it('asks before it takes a backlog, and continues after the confirmation', () => {
    const { store, sent, say, events } = joined();
    say({ type: 'ask', topic: 'orders', nodes: [{ node: 'n', depth: 4 }] });
    expect(store.state).toEqual({ status: 'asking', nodes: [{ node: 'n', depth: 4 }] });
    store.start(true);
    events().opened();
    expect(sent.at(-1)).toMatchObject({ type: 'start', take_backlog: true });
  });
  it('shows why it ended', () => {
    const { store, say, events } = joined();
    say({ type: 'error', message: 'no' });
    events().closed(1006);
    expect(store.state).toEqual({ status: 'failed', message: 'no' });
  });
});
