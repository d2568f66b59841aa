import { expect, test } from 'vitest';
import { based, unbased } from './base';

test('a path gets the base once, and loses it again', () => {
  expect(based('/topics', '/nsq')).toBe('/nsq/topics');
  expect(based('/nsq/topics', '/nsq')).toBe('/nsq/topics');
  expect(based('/nsqd', '/nsq')).toBe('/nsq/nsqd');
  expect(unbased('/nsq/topics', '/nsq')).toBe('/topics');
  expect(unbased('/nsq', '/nsq')).toBe('/');
  expect(unbased('/topics', '/nsq')).toBe('/topics');
});

test('without a base nothing changes', () => {
  expect(based('/topics', '')).toBe('/topics');
  expect(unbased('/topics', '')).toBe('/topics');
});
