import { expect, test } from 'vitest';
import type { TopicRow } from '../api/types';
import { CLUSTER, History, Ring, topicSeries } from './history';
import type { ClusterSnapshot } from '../snapshot/snapshot';

function snapshot(second: number, depths: Record<string, number>, publishRate: number | null = 1): ClusterSnapshot {
  const topics = Object.entries(depths).map(([name, depth]): [string, TopicRow] => [
    name,
    { name, depth, publish_rate: publishRate } as TopicRow,
  ]);
  return { version: second, takenAt: second * 1000, nodes: new Map(), topics: new Map(topics), channels: new Map() };
}

test('a ring keeps the last values, oldest first, however many were pushed', () => {
  for (const capacity of [1, 3, 64, 65, 200]) {
    for (const pushed of [0, 1, capacity - 1, capacity, capacity + 1, capacity * 2 + 7]) {
      const ring = new Ring(capacity);
      for (let value = 0; value < pushed; value++) ring.push(value);
      const kept = Math.min(pushed, capacity);
      expect(ring.last()).toEqual(Array.from({ length: kept }, (_, i) => pushed - kept + i));
      expect(ring.last(2)).toEqual(ring.last().slice(-2));
    }
  }
});

test('a topic that appears later has only its own beats, with their times', () => {
  const history = new History(10);
  history.record(snapshot(1, { old: 5 }));
  history.record(snapshot(2, { old: 6, young: 1 }));
  history.record(snapshot(3, { old: 7, young: 2 }));
  expect(history.columns(topicSeries('old'), ['depth'])).toEqual([
    [1, 2, 3],
    [5, 6, 7],
  ]);
  expect(history.columns(topicSeries('young'), ['depth'])).toEqual([
    [2, 3],
    [1, 2],
  ]);
});

test('only the last beats are kept, for every series alike', () => {
  const history = new History(3);
  for (let second = 1; second <= 8; second++) history.record(snapshot(second, { a: second * 10 }));
  expect(history.columns(topicSeries('a'), ['depth'])).toEqual([
    [6, 7, 8],
    [60, 70, 80],
  ]);
  expect(history.columns(CLUSTER, ['depth'])[1]).toEqual([60, 70, 80]);
});

test('a deleted topic is forgotten; one created again starts afresh', () => {
  const history = new History(10);
  history.record(snapshot(1, { a: 1 }));
  history.record(snapshot(2, {}));
  expect(history.recent(topicSeries('a'), 'depth', 5)).toEqual([]);
  history.record(snapshot(3, { a: 9 }));
  expect(history.columns(topicSeries('a'), ['depth'])).toEqual([[3], [9]]);
});

test('a rate that is not known is a gap in the chart, not a zero', () => {
  const history = new History(10);
  history.record(snapshot(1, { a: 1 }, null));
  history.record(snapshot(2, { a: 1 }, 4));
  expect(history.columns(topicSeries('a'), ['publish_rate'])[1]).toEqual([null, 4]);
});

test('growth is measured per second of real time and needs two beats', () => {
  const history = new History(10);
  history.record(snapshot(10, { a: 100 }));
  expect(history.slope(topicSeries('a'), 'depth', 30)).toBeNull();
  history.record(snapshot(14, { a: 120 }));
  expect(history.slope(topicSeries('a'), 'depth', 30)).toBe(5);
  expect(history.slope(topicSeries('unknown'), 'depth', 30)).toBeNull();
});
