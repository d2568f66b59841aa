import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { feedPath, openEarly, takeSocket } from './early';
import { openSocket } from './socket';

class FakeSocket extends EventTarget {
  static made: FakeSocket[] = [];
  onopen: ((event: Event) => void) | null = null;
  onmessage: ((event: Event) => void) | null = null;
  onclose: ((event: Event) => void) | null = null;
  closed = false;

  constructor(readonly url: string) {
    super();
    for (const type of ['open', 'message', 'close'] as const) this.addEventListener(type, (event) => this[`on${type}`]?.(event));
    FakeSocket.made.push(this);
  }

  close(): void {
    this.closed = true;
  }
}

const message = (data: string): MessageEvent => new MessageEvent('message', { data });

beforeEach(() => {
  FakeSocket.made = [];
  vi.stubGlobal('WebSocket', FakeSocket);
  vi.stubGlobal('window', { location: { protocol: 'http:', host: 'nsq' } });
});
afterEach(() => void vi.unstubAllGlobals());

describe('a websocket that is opened before the page’s code is loaded', () => {
  test('delivers what it received meanwhile, and then the rest', async () => {
    openEarly('ws://nsq/ws/cluster');
    const early = FakeSocket.made[0] as FakeSocket;
    early.dispatchEvent(new Event('open'));
    early.dispatchEvent(message('one'));
    const seen: string[] = [];
    openSocket('/ws/cluster', (text) => text, { opened: () => seen.push('opened'), message: (text) => seen.push(text), closed: () => seen.push('closed') });
    expect(seen).toEqual([]);
    await Promise.resolve();
    early.dispatchEvent(message('two'));
    expect(seen).toEqual(['opened', 'one', 'two']);
    expect(FakeSocket.made).toHaveLength(1);
  });

  test('serves one connection with its address', () => {
    openEarly('ws://nsq/ws/cluster?topic=a');
    expect(takeSocket('ws://nsq/ws/cluster?topic=a').socket).toBe(FakeSocket.made[0]);
    expect(takeSocket('ws://nsq/ws/cluster?topic=a').socket).toBe(FakeSocket.made[1]);
  });

  test('is closed if the page connects to another address', () => {
    openEarly('ws://nsq/ws/cluster?topic=a');
    takeSocket('ws://nsq/ws/cluster');
    expect(FakeSocket.made.map(({ url, closed }) => [url, closed])).toEqual([
      ['ws://nsq/ws/cluster?topic=a', true],
      ['ws://nsq/ws/cluster', false],
    ]);
  });
});

test.each([
  [{}, '/ws/cluster'],
  [{ topic: 'a#ephemeral' }, '/ws/cluster?topic=a%23ephemeral'],
  [{ node: '[::1]:4151' }, '/ws/cluster?node=%5B%3A%3A1%5D%3A4151'],
])('the feed of %j has the path %s', (view, path) => {
  expect(feedPath(view)).toBe(path);
});
