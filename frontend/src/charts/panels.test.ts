import { expect, test } from 'vitest';
import { columnsOf, metricsOf, PANELS } from './panels';

test('a channel has charts of latency, oldest age, in flight, deferred, requeues and timeouts beside depth and rates', () => {
  expect(metricsOf(PANELS.channel)).toEqual([
    ...(['depth', 'publish_rate', 'finish_rate', 'oldest_age_ms', 'p50_ms', 'p99_ms'] as const),
    ...(['in_flight', 'deferred', 'requeue_rate', 'timeout_rate'] as const),
  ]);
});

test('each chart gets the columns of its own lines, whatever the order of the metrics', () => {
  const metrics = ['timeout_rate', 'depth', 'requeue_rate'] as const;
  const retries = PANELS.channel.find(({ title }) => title.startsWith('Requeues'));
  expect(columnsOf(retries!, metrics, [[10, 20], [1, 2], [3, 4], [5, null]])).toEqual([[10, 20], [5, null], [1, 2]]);
});
