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

test('a topic that appears later has only its own polls, with their times', () => {
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

test('only the last polls are kept, for every series alike', () => {
  const history = new History(3);
  for (let second = 1; second <= 8; second++) history.record(snapshot(second, { a: second * 10 }));
  expect(history.columns(topicSeries('a'), ['depth'])).toEqual([
    [6, 7, 8],
    [60, 70, 80],
  ]);
  expect(history.columns(CLUSTER, ['depth'])[1]).toEqual([60, 70, 80]);
});

test('a deleted topic is forgotten; one created again starts without figures', () => {
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

test('growth is measured per second of real time and needs two polls', () => {
  const history = new History(10);
  history.record(snapshot(10, { a: 100 }));
  expect(history.slope(topicSeries('a'), 'depth', 30)).toBeNull();
  history.record(snapshot(14, { a: 120 }));
  expect(history.slope(topicSeries('a'), 'depth', 30)).toBe(5);
  expect(history.slope(topicSeries('unknown'), 'depth', 30)).toBeNull();
});

test('the records of the time before the first poll come first, a value for each second', () => {
  const history = new History(3600);
  history.record(snapshot(100, { orders: 50 }));
  history.record(snapshot(101, { orders: 51 }));
  const records = { scope: 'topic', names: ['orders', 'gone'], times: [70, 80, 90, 100], phases: [3, 0] } as const;
  history.fill([{ ...records, metrics: { depth: [[10, 20, 30, null], [1]], publish_rate: [[2], [1]] } }], 10);
  const [times, depth, rates] = history.columns(topicSeries('orders'), ['depth', 'publish_rate']);
  expect(times.slice(0, 3)).toEqual([73, 74, 75]);
  expect(times.slice(-2)).toEqual([100, 101]);
  expect(depth?.slice(0, 11)).toEqual([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
  expect(depth?.slice(-10)).toEqual([29, 30, 30, 30, 30, 30, 30, 30, 50, 51]); // none is written yet after 93
  expect(rates?.every((rate) => rate !== null)).toBe(true);
  expect(history.polls(topicSeries('gone'))).toBe(0);
});

test('figures missed while another page was shown are added, and those received stay', () => {
  const history = new History(3600);
  for (let second = 1; second <= 40; second++) {
    history.record(snapshot(second, { orders: second, other: 1 }), second > 10 && second <= 30 ? { topic: 'other' } : {});
  }
  expect(history.growth(topicSeries('orders'), 'depth', 40)).toBeNull();
  const records = { scope: 'topic', names: ['orders'], phases: [0] } as const;
  history.fill([{ ...records, times: [0, 10, 20, 30, 40], metrics: { depth: [[0, 999, 20, 30, 999]] } }], 10);
  const depth = history.recent(topicSeries('orders'), 'depth', 40);
  expect(depth.slice(0, 10)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  expect(depth.slice(19)).toEqual([20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40]);
  expect(history.growth(topicSeries('orders'), 'depth', 12)).toBeCloseTo(1);
});

test('each value of a chart is at its time, though one metric has earlier records than another', () => {
  const history = new History(3600);
  history.record(snapshot(50, { orders: 5 }, 7));
  const records = { scope: 'topic', names: ['orders'], times: [30, 40], phases: [0] } as const;
  history.fill([{ ...records, metrics: { depth: [[1, 2]], publish_rate: [[null, 6]] } }], 10);
  const [times, depth, rates] = history.columns(topicSeries('orders'), ['depth', 'publish_rate']);
  expect([times[0], depth?.[0], rates?.[0]]).toEqual([30, 1, null]);
  expect([times.at(-1), depth?.at(-1), rates?.at(-1)]).toEqual([50, 5, 7]);
  expect(rates).toHaveLength(times.length);
});

test('whether a trend is known', () => {
  const history = new History(3600);
  expect(history.covers(topicSeries('orders'), 'depth', 60)).toBe(false);
  for (let second = 1; second <= 9; second++) history.record(snapshot(second, { orders: 0 }));
  expect(history.covers(topicSeries('orders'), 'depth', 60)).toBe(false);
  history.record(snapshot(10, { orders: 0 }));
  expect(history.covers(topicSeries('orders'), 'depth', 60)).toBe(true);
});
