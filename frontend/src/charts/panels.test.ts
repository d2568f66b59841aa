import { expect, test } from 'vitest';
import { columnsOf, metricsOf, PANELS, shown } from './panels';

test('a channel has charts of latency, oldest age, in flight, deferred, requeues and timeouts beside depth and rates', () => {
  expect(metricsOf(PANELS.channel)).toEqual([
    ...(['depth', 'publish_rate', 'finish_rate', 'oldest_age_ms', 'p50_ms', 'p99_ms'] as const),
    ...(['in_flight', 'deferred', 'requeue_rate', 'timeout_rate', 'emptied_rate', 'rewound_rate', 'death_rate', 'drop_rate'] as const),
  ]);
});

test('each chart receives the columns of its lines, whatever the order of the metrics', () => {
  const metrics = ['timeout_rate', 'depth', 'requeue_rate'] as const;
  const retries = PANELS.channel.find(({ title }) => title.startsWith('Requeues'));
  expect(columnsOf(retries!, metrics, [[10, 20], [1, 2], [3, 4], [5, null]])).toEqual([[10, 20], [5, null], [1, 2]]);
});

test('the chart of emptied and rewound messages is there when there were some', () => {
  const metrics = metricsOf(PANELS.topic);
  const titles = (emptied: (number | null)[]): string[] =>
    shown(PANELS.topic, metrics, [[10, 20], ...metrics.map((metric) => (metric === 'emptied_rate' ? emptied : [1, 1]).map((value) => (metric === 'rewound_rate' ? 0 : value)))]).map(({ title }) => title);
  expect(titles([0, null])).not.toContain('Emptied and rewound per second');
  expect(titles([null, 417])).toContain('Emptied and rewound per second');
});
