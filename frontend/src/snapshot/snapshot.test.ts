import { expect, test } from 'vitest';
import type { NodeRow } from '../api/types';
import { wasDeleted, type ClusterSnapshot } from './snapshot';

function clusterOf(states: Record<string, 'up' | 'down'>): ClusterSnapshot {
  const nodes = new Map(Object.entries(states).map(([id, state]) => [id, { id, state } as NodeRow]));
  return { version: 1, takenAt: 0, nodes, topics: new Map(), channels: new Map() };
}

test('a missing topic counts as deleted once every node that had it answers without it', () => {
  expect(wasDeleted(clusterOf({ 'a:1': 'up', 'b:1': 'up' }), ['a:1', 'b:1'])).toBe(true);
  expect(wasDeleted(clusterOf({ 'a:1': 'up', 'c:1': 'down' }), ['a:1'])).toBe(true);
});

test('it does not count as deleted while a collector that has just started has not read its nodes', () => {
  expect(wasDeleted(clusterOf({}), ['a:1'])).toBe(false);
  expect(wasDeleted(clusterOf({}), [])).toBe(false);
  expect(wasDeleted(clusterOf({ 'b:1': 'up' }), ['a:1', 'b:1'])).toBe(false);
});

test('nor while one of its nodes is down, or has left the cluster', () => {
  expect(wasDeleted(clusterOf({ 'a:1': 'down' }), ['a:1'])).toBe(false);
  expect(wasDeleted(clusterOf({ 'b:1': 'up' }), ['a:1'])).toBe(false);
});
