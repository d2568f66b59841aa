import { expect, test } from 'vitest';
import type { Job, JobSubject } from '../api/types';
import type { Dismissed } from '../jobs/dismissed';
import { JobStore } from './jobs.svelte';

const NOW = 1_795_000_000_000;
const job = (id: number, more: Partial<Job> = {}): Job => ({ id, state: 'running', requested_by: 'ana', created_at: NOW, total: 10, done_count: 0, ...more }) as Job;
const nothing: Dismissed = { read: () => [], write: () => {} };
const api = (list: Job[]) => ({ start: async () => job(9), list: async () => list, cancel: async (id: number) => job(id, { cancel_requested: true }) });
const ids = (store: JobStore): number[] => store.shown.map(({ id }) => id);

test('a page that opens shows the jobs of everybody that run, and those of its own user that just succeeded, or failed today', async () => {
  const ended = (id: number, ago: number, more: Partial<Job> = {}): Job => job(id, { state: 'finished', created_at: NOW - ago, finished_at: NOW - ago, partial_count: 0, failed_count: 0, ...more });
  const store = new JobStore(
    api([
      job(8, { requested_by: 'ben' }),
      ended(7, 1000, { requested_by: 'ben' }),
      ended(6, 30_000),
      ended(5, 90_000),
      ended(4, 3_600_000, { failed_count: 2 }),
      ended(3, 3_600_000, { state: 'cancelled' }),
      ended(2, 86_400_000, { failed_count: 2 }),
    ]),
    nothing,
  );
  await store.load('ana', NOW);
  expect(ids(store)).toEqual([8, 6, 4, 3]);
});

test('a job of another user stays after its end, until it is dismissed', () => {
  let kept: readonly number[] = [];
  const store = new JobStore(api([]), { read: () => kept, write: (next) => (kept = next) });
  store.take(job(4, { requested_by: 'ben' }));
  store.take(job(4, { requested_by: 'ben', state: 'finished', done_count: 10 }));
  expect(store.shown[0]?.done_count).toBe(10);
  store.dismiss(4);
  expect(ids(store)).toEqual([]);
  const reloaded = new JobStore(api([]), { read: () => kept, write: () => {} });
  reloaded.take(job(4, { state: 'finished' }));
  expect(ids(reloaded)).toEqual([]);
});

test('a dismissed job stays dismissed, however many are dismissed after it', () => {
  const store = new JobStore(api([]), nothing);
  const ended = Array.from({ length: 101 }, (_, at) => job(at + 1, { state: 'finished' }));
  for (const each of ended) store.take(each);
  for (const { id } of ended) store.dismiss(id);
  expect(ids(store)).toEqual([]);
});

test('a late answer does not bring an ended job back', async () => {
  const store = new JobStore(api([]), nothing);
  store.take(job(5, { state: 'cancelled' }));
  await store.cancel(5);
  expect(store.shown[0]?.state).toBe('cancelled');
});

test('a job that was started is shown before its first message', async () => {
  const store = new JobStore(api([]), nothing);
  await store.start('delete', [{ topic: 'a' }]);
  expect(ids(store)).toEqual([9]);
});

test('the jobs of a session that has ended are not shown to the next user', async () => {
  let answer!: (jobs: Job[]) => void;
  const store = new JobStore({ ...api([]), list: () => new Promise<Job[]>((resolve) => (answer = resolve)) }, nothing);
  const loading = store.load('ana', NOW);
  store.forget();
  answer([job(8)]);
  await loading;
  expect(ids(store)).toEqual([]);
});

test('a job that was started by a session that has ended is not shown to the next user', async () => {
  let answer!: (started: Job) => void;
  const store = new JobStore({ ...api([]), start: () => new Promise<Job>((resolve) => (answer = resolve)) }, nothing);
  const starting = store.start('delete', [{ topic: 'a' }]);
  store.forget();
  answer(job(9));
  await starting;
  expect(ids(store)).toEqual([]);
});

test('of two lists of a job, the one that was requested last is shown', async () => {
  const store = new JobStore(api([]), nothing);
  const subject = (id: number): JobSubject => ({ id, state: 'failed' }) as JobSubject;
  let answer!: (subjects: JobSubject[]) => void;
  const slow = store.list(1, new Promise<JobSubject[]>((resolve) => (answer = resolve)));
  await store.list(1, Promise.resolve([subject(10), subject(11)]));
  answer([subject(10)]);
  await slow;
  expect(store.lists.get(1)).toMatchObject({ value: [{ id: 10 }, { id: 11 }] });
});

test('the lists of two jobs are shown, in whichever order they arrive', async () => {
  const store = new JobStore(api([]), nothing);
  const subject = (id: number): JobSubject => ({ id, state: 'failed' }) as JobSubject;
  let answer!: (subjects: JobSubject[]) => void;
  const slow = store.list(1, new Promise<JobSubject[]>((resolve) => (answer = resolve)));
  await store.list(2, Promise.resolve([subject(20)]));
  answer([subject(10)]);
  await slow;
  expect([...store.lists]).toEqual([
    [2, { status: 'ready', value: [subject(20)] }],
    [1, { status: 'ready', value: [subject(10)] }],
  ]);
});
