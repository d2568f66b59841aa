import { expect, test } from 'vitest';
import type { ChannelRow, NodeRow } from '../api/types';
import { applyDelta, channelKey, fromSnapshot, wasDeleted, type ClusterSnapshot } from './snapshot';

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

test('deltas, one after the other, give what the whole snapshot of their version gives', () => {
  let state = 7;
  const random = (below: number): number => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;
  const nothing = { put: [], set: { keys: [], columns: {} }, drop: [] };
  const rows = new Map<string, ChannelRow>();
  const whole = (version: number): ClusterSnapshot =>
    fromSnapshot({ version, taken_at: version, nodes: [], topics: [], channels: [...rows.values()] });
  let snapshot = whole(0);
  for (let version = 1; version <= 300; version++) {
    const before = snapshot;
    const kept = structuredClone([...before.channels]);
    const drop = [...rows.keys()].filter(() => random(10) === 0);
    for (const key of drop) rows.delete(key);
    const keys = [...rows.keys()].filter(() => random(2) === 0);
    const columns = { depth: keys.map(() => random(100)), p99_ms: keys.map(() => [null, random(100)][random(2)] ?? null) };
    keys.forEach((key, at) => {
      rows.set(key, { ...(rows.get(key) as ChannelRow), depth: columns.depth[at] as number, p99_ms: columns.p99_ms[at] ?? null });
    });
    const put = [{ topic: 't', name: `c${random(40)}`, depth: random(100), p99_ms: null } as ChannelRow];
    // A row that is put is not in the columns as well.
    const set = keys.includes(channelKey(put[0] as ChannelRow)) ? [] : put;
    for (const row of set) rows.set(channelKey(row), row);
    const delta = { version, base: version - 1, taken_at: version, nodes: nothing, topics: nothing };
    snapshot = applyDelta(before, { ...delta, channels: { put: set, set: { keys: ['gone/gone', ...keys], columns: { depth: [0, ...columns.depth], p99_ms: [null, ...columns.p99_ms] } }, drop } }) as ClusterSnapshot;
    expect(Object.fromEntries(snapshot.channels)).toEqual(Object.fromEntries(whole(version).channels));
    expect([...before.channels]).toEqual(kept); // a page that is paused still shows the old one
  }
});
