import { afterEach, expect, test, vi } from 'vitest';
import { hoursOf, lineOf } from '../reports/lines';
import { ResultStore } from './result.svelte';

/** An API whose answer depends on the path, and may be delayed. */
function answering(answer: (path: string) => unknown, refusal = 200) {
  const asked: string[] = [];
  vi.stubGlobal('document', { cookie: '' });
  vi.stubGlobal('fetch', async ({ url: path }: Request) => {
    asked.push(path.slice(path.indexOf('result')));
    const body = await answer(path);
    const refused = typeof body === 'object' && body !== null && 'message' in body;
    return new Response(JSON.stringify(body), { status: refused ? refusal : 200 });
  });
  return asked;
}
afterEach(() => vi.unstubAllGlobals());

const columns = [{ name: 'channel', type: 'string', unit: '' }];

test('each page is requested with filters and order, the groups only once', async () => {
  const asked = answering((path) => (path.includes('/groups') ? { groups: [{ topic: 't', channel: 'c' }] } : { columns, rows: [['c']], total: 9, matching: 1 }));
  const store = new ResultStore(7, 2);
  await store.show({ offset: 0 });
  await store.show({ offset: 2, sort: '-p99_ms', topic: 't', channel: '', since: 5 });
  expect(asked).toEqual(['result?offset=0&limit=2', 'result/groups', 'result?offset=2&sort=-p99_ms&topic=t&channel=&since=5&limit=2']);
  expect([store.result?.matching, store.offset, store.groups]).toEqual([1, 2, [{ topic: 't', channel: 'c' }]]);
});

test('an outdated answer is not shown', async () => {
  let release = (): void => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  answering(async (path) => {
    if (path.includes('words=slow')) await held;
    return { columns: [], rows: [[path.includes('slow') ? 'slow' : 'quick']], total: 1, matching: 1 };
  });
  const store = new ResultStore(7);
  const slow = store.show({ words: 'slow', offset: 0 });
  await store.show({ words: 'quick', offset: 0 });
  release();
  await slow;
  expect(store.result?.rows).toEqual([['quick']]);
});

test('a map of hours is requested separately if the points of the line are longer than an hour', async () => {
  const day = 86_400_000;
  const asked = answering(() => ({ step_ms: day, window_count: 24 * 60, points: [[0, 1], [59 * day, 2]] }));
  const line = await lineOf(7, { topic: 't', channel: null }, ['p99_ms']);
  await hoursOf(7, { topic: 't', channel: null }, 'p99_ms', line);
  expect(asked.map((path) => new URLSearchParams(path.split('?')[1]).get('points'))).toEqual(['1000', String(59 * 24 + 48)]);
  expect(await hoursOf(7, { topic: 't', channel: null }, 'p99_ms', { ...line, stepMs: 3_600_000 })).toBe(line.cells);
});

test('an unknown column of a result is ignored as its order', async () => {
  answering((path) => (path.includes('sort=') ? { message: "sort: there is no column 'x'" } : { columns: [], rows: [['all']], total: 1, matching: 1 }), 422);
  const store = new ResultStore(7);
  await store.show({ sort: 'x', offset: 0 });
  expect([store.result?.rows, store.error]).toEqual([[['all']], '']);
});
