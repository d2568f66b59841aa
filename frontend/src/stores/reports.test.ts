import { afterEach, expect, test, vi } from 'vitest';
import type { Run } from '../api/types';
import { leftText, withRun } from '../reports/runs';
import { ReportStore, RunStore } from './reports.svelte';

const run = (id: number, change: Partial<Run> = {}): Run => ({ id, state: 'running', progress: 0, ...change }) as Run;

/** An API that gives these answers by the end of the path. */
function answering(answers: Record<string, unknown>) {
  const asked: string[] = [];
  vi.stubGlobal('document', { cookie: '' });
  vi.stubGlobal('fetch', async ({ url: path }: Request) => {
    asked.push(path);
    const found = Object.entries(answers).find(([end]) => path.endsWith(end));
    return found
      ? new Response(JSON.stringify(found[1]), { status: 200 })
      : new Response(JSON.stringify({ message: 'there is nothing here' }), { status: 404, statusText: 'Not Found' });
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

test('a received run is put in order, newest first, and replaces its older state', () => {
  const runs = withRun(withRun([run(1)], run(3)), run(2));
  expect(runs.map((one) => one.id)).toEqual([3, 2, 1]);
  expect(withRun(runs, run(2, { progress: 0.5 }))[1]?.progress).toBe(0.5);
});

test('older runs are loaded page by page until there are none', async () => {
  answering({
    'reports/jobs': { jobs: [] },
    'reports/schedules': { schedules: [] },
    'runs?limit=2': { runs: [run(5), run(4)] },
    'runs?limit=2&before=4': { runs: [run(3)] },
  });
  const store = new ReportStore(2);
  await store.load();
  expect(store.older).toBe(true);
  await store.loadOlder();
  expect(store.runs).toMatchObject({ value: [{ id: 5 }, { id: 4 }, { id: 3 }] });
  expect(store.older).toBe(false);
});

test('a failed request shows the error and keeps the rest', async () => {
  answering({ 'reports/jobs': { jobs: [] }, 'runs?limit=50': { runs: [] } });
  const store = new ReportStore();
  await store.load();
  expect(store.schedules.found).toEqual({ status: 'failed', message: 'There is nothing here.' });
  expect(store.jobs.found.status).toBe('ready');
});

test('what was read stays when it cannot be read again, with the reason, until it can', async () => {
  answering({ 'reports/jobs': { jobs: [] }, 'reports/schedules': { schedules: [] }, 'runs?limit=50': { runs: [run(5)] }, 'runs/5': run(5) });
  const [reports, one] = [new ReportStore(), new RunStore(5)];
  const load = () => Promise.all([reports.load(), one.load()]);
  await load();
  answering({});
  await load();
  expect(reports.runs.value).toMatchObject([{ id: 5 }]);
  expect(one.run.value).toMatchObject({ id: 5 });
  expect([reports.fault, one.run.fault]).toEqual(['There is nothing here.', 'There is nothing here.']);
  answering({ 'reports/jobs': { jobs: [] }, 'reports/schedules': { schedules: [] }, 'runs?limit=50': { runs: [run(6)] }, 'runs/5': run(5) });
  await load();
  expect(reports.runs.value).toMatchObject([{ id: 6 }]);
  expect([reports.fault, one.run.fault]).toEqual(['', '']);
});

test('the time left is shown roughly', () => {
  expect([3, 12, 50, 58, 150, 3599, 7380].map(leftText)).toEqual([
    ...['a few seconds left', 'about 20 s left', 'about 50 s left', 'about 1 m left'],
    ...['about 3 m left', 'about 1 h 0 m left', 'about 2 h 3 m left'],
  ]);
});

/** An API whose answers are given by hand: each request waits in `asked`. */
function waiting() {
  const asked: { path: string; answer: (body: unknown) => void }[] = [];
  vi.stubGlobal('document', { cookie: '' });
  vi.stubGlobal('fetch', ({ url }: Request) => {
    return new Promise<Response>((resolve) => asked.push({ path: url, answer: (body) => resolve(new Response(JSON.stringify(body), { status: 200 })) }));
  });
  const requests = (end: string) => asked.filter(({ path }) => path.endsWith(end));
  return { requests, answer: async (end: string, at: number, body: unknown) => (await vi.waitFor(() => requests(end)[at] ?? Promise.reject(new Error(end)))).answer(body) };
}

test('a run that ends while the runs are requested has ended in the list', async () => {
  const api = waiting();
  const store = new ReportStore();
  const loading = store.load();
  store.take(run(5, { state: 'succeeded' }));
  await api.answer('reports/jobs', 0, { jobs: [] });
  await api.answer('reports/schedules', 0, { schedules: [] });
  await api.answer('runs?limit=50', 0, { runs: [run(5), run(4)] });
  await loading;
  expect(store.runs).toMatchObject({ value: [{ id: 5, state: 'succeeded' }, { id: 4 }] });
});

test('a run that ends while it is requested has ended on its page', async () => {
  const api = waiting();
  const store = new RunStore(5);
  const loading = store.load();
  store.take(run(5, { state: 'succeeded' }));
  await api.answer('runs/5', 0, run(5));
  await loading;
  expect(store.run).toMatchObject({ value: { state: 'succeeded' } });
});

test('two clicks on Load more add the older runs once', async () => {
  const api = waiting();
  const store = new ReportStore(2);
  const loading = store.load();
  await api.answer('reports/jobs', 0, { jobs: [] });
  await api.answer('reports/schedules', 0, { schedules: [] });
  await api.answer('runs?limit=2', 0, { runs: [run(5), run(4)] });
  await loading;
  const both = [store.loadOlder(), store.loadOlder()];
  await api.answer('before=4', 0, { runs: [run(3), run(2)] });
  await api.answer('before=4', 1, { runs: [run(3), run(2)] });
  await Promise.all(both);
  expect(store.runs).toMatchObject({ value: [{ id: 5 }, { id: 4 }, { id: 3 }, { id: 2 }] });
});

test('of two requests for the schedules the newer answer is shown, also if it arrives first', async () => {
  const api = waiting();
  const store = new ReportStore();
  const both = [store.loadSchedules(), store.loadSchedules()];
  await api.answer('reports/schedules', 1, { schedules: [{ id: 1, enabled: false }] });
  await api.answer('reports/schedules', 0, { schedules: [{ id: 1, enabled: true }] });
  await Promise.all(both);
  expect(store.schedules).toMatchObject({ value: [{ enabled: false }] });
});
