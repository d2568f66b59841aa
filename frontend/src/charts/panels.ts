/** The charts of each scope: which figures one chart draws, and how. */
import type { Metric } from '../api/figures';
import { duration, rate, short, tick } from '../format/format';
import type { Columns } from '../history/columns';
import type { Line } from './Plot.svelte';

export type Panel = {
  title: string;
  lines: readonly (Line & { metric: Metric })[];
  axisFormat: (value: number) => string;
  /** Said in place of the lines if none has a value. */
  empty?: string;
  /** Smallest maximum of the axis, so that its labels are whole numbers. */
  least?: number;
  /** Shown only with a value above 0: what it draws rarely happens. */
  rare?: boolean;
};

const perSecond = (value: number | null): string => `${rate(value)}/s`;

const DEPTH: Panel = {
  title: 'Depth, messages',
  lines: [{ metric: 'depth', label: 'Depth', token: '--depth', format: short, fill: true }],
  axisFormat: tick,
  least: 4,
};
const RATES: Panel = {
  title: 'Messages per second',
  lines: [
    { metric: 'publish_rate', label: 'Published', token: '--publish', format: perSecond },
    { metric: 'finish_rate', label: 'Finished', token: '--finish', format: perSecond, dash: [5, 3] },
  ],
  axisFormat: tick,
};
const OLDEST: Panel = {
  title: 'Age of the oldest unfinished message',
  empty: 'No message was unfinished, or its nodes report no ages.',
  lines: [{ metric: 'oldest_age_ms', label: 'Oldest age', token: '--depth', format: duration, fill: true }],
  axisFormat: duration,
};
const LATENCY: Panel = {
  title: 'Latency from publishing to finishing',
  empty: 'No message was finished.',
  lines: [
    { metric: 'p50_ms', label: 'p50', token: '--series-2', format: duration },
    { metric: 'p99_ms', label: 'p99', token: '--series-4', format: duration, dash: [5, 3] },
  ],
  axisFormat: duration,
};
const IN_FLIGHT = { metric: 'in_flight', label: 'In flight', token: '--series-3', format: short } as const;
const CLIENTS = { metric: 'clients', label: 'Clients', token: '--series-1', format: short } as const;

const REMOVED: Panel = {
  title: 'Emptied and rewound per second',
  lines: [
    { metric: 'emptied_rate', label: 'Emptied', token: '--series-5', format: perSecond },
    { metric: 'rewound_rate', label: 'Rewound', token: '--series-2', format: perSecond, dash: [5, 3] },
  ],
  axisFormat: tick,
  rare: true,
};
const LOST: Panel = {
  title: 'Died and dropped per second',
  lines: [
    { metric: 'death_rate', label: 'Died', token: '--series-5', format: perSecond },
    { metric: 'drop_rate', label: 'Dropped', token: '--series-4', format: perSecond, dash: [5, 3] },
  ],
  axisFormat: tick,
  rare: true,
};
const CONSUMERS: Panel = { title: 'In flight and clients', lines: [IN_FLIGHT, CLIENTS], axisFormat: tick, least: 4 };

export const PANELS: Readonly<Record<'cluster' | 'node' | 'topic' | 'channel', readonly Panel[]>> = {
  cluster: [DEPTH, RATES, CONSUMERS],
  node: [DEPTH, RATES],
  topic: [DEPTH, RATES, OLDEST, CONSUMERS, REMOVED],
  channel: [
    DEPTH,
    RATES,
    OLDEST,
    LATENCY,
    {
      title: 'In flight and deferred, messages',
      lines: [IN_FLIGHT, { metric: 'deferred', label: 'Deferred', token: '--series-4', format: short, dash: [5, 3] }],
      axisFormat: tick,
      least: 4,
    },
    {
      title: 'Requeues and timeouts per second',
      lines: [
        { metric: 'requeue_rate', label: 'Requeued', token: '--series-4', format: perSecond },
        { metric: 'timeout_rate', label: 'Timed out', token: '--series-5', format: perSecond, dash: [5, 3] },
      ],
      axisFormat: tick,
    },
    REMOVED,
    LOST,
  ],
};

/** The panels that have something to show. */
export const shown = (panels: readonly Panel[], metrics: readonly Metric[], columns: Columns): readonly Panel[] =>
  panels.filter((panel) => {
    const [, ...values] = columnsOf(panel, metrics, columns);
    return !panel.rare || values.some((column) => column.some((value) => (value ?? 0) > 0));
  });

/** The metrics that these charts draw, each once. */
export const metricsOf = (panels: readonly Panel[]): Metric[] => [
  ...new Set(panels.flatMap(({ lines }) => lines.map(({ metric }) => metric))),
];

/** The columns of one chart, out of `columns` with a column for each of `metrics`. */
export function columnsOf(panel: Panel, metrics: readonly Metric[], columns: Columns): Columns {
  const [times, ...values] = columns;
  return [times, ...panel.lines.map(({ metric }) => values[metrics.indexOf(metric)] ?? [])];
}
