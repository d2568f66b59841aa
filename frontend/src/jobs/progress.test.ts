import { expect, test } from 'vitest';
import type { Job } from '../api/types';
import { noteOf, placeOf, progressOf, titleOf } from './progress';

const job = (more: Partial<Job>): Job =>
  ({ kind: 'delete', noun: 'topic', state: 'running', total: 2000, done_count: 0, partial_count: 0, failed_count: 0, rate: null, message: '', cancel_requested: false, parameters: {}, ...more }) as Job;

test('the title says what is done to how many', () => {
  expect(titleOf(job({}))).toBe('Delete 2,000 topics');
  expect(titleOf(job({ total: 1, noun: 'channel', kind: 'empty' }))).toBe('Empty 1 channel');
  expect(titleOf(job({ kind: 'move messages', noun: 'batch', total: 3, parameters: { messages: 250, target: 'returns' } }))).toBe('Move 250 messages to returns');
});

test('a job on dead messages counts requests, because each node of a channel takes one', () => {
  const parameters = { messages: 1200, exact: true, reason: null, since: null, rate: 100 };
  const requeue = job({ kind: 'requeue dead messages', noun: 'request', total: 3, done_count: 1, parameters });
  expect(titleOf(requeue)).toBe('Requeue 1,200 dead messages');
  expect(titleOf({ ...requeue, parameters: { ...parameters, exact: false } })).toBe('Requeue up to 1,200 dead messages');
  expect(progressOf(requeue)).toBe('1 request answered, 2 remaining');
  expect(placeOf({ topic: 'orders', channel: 'billing', node: 'a:1' })).toBe('orders / billing on a:1');
});

test('the progress names only numbers that are not zero', () => {
  expect(progressOf(job({ done_count: 340, failed_count: 2, rate: 180.2 }))).toBe('340 done, 2 failed, 1,658 remaining, 180/s');
  expect(progressOf(job({ state: 'finished', done_count: 1999, partial_count: 1 }))).toBe('1,999 done, 1 on some nodes only');
  expect(progressOf(job({ state: 'cancelled', done_count: 340, rate: null }))).toBe('340 done, 1,660 not done');
  expect(progressOf(job({ noun: 'batch', total: 3, done_count: 1 }))).toBe('1 batch done, 2 remaining');
});

test('the note says why a job waits or has ended early', () => {
  expect(noteOf(job({}))).toBe('');
  expect(noteOf(job({ state: 'queued' }))).toBe('Waiting for a dispatcher');
  expect(noteOf(job({ cancel_requested: true, message: 'cancelled by ana' }))).toBe('Cancelling');
  expect(noteOf(job({ state: 'cancelled', message: 'cancelled by ana' }))).toBe('Cancelled by ana');
  expect(noteOf(job({ state: 'stopped', message: 'ana lost the permission: …' }))).toBe('Stopped: ana lost the permission: …');
});
