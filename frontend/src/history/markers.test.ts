import { expect, test } from 'vitest';
import type { ClusterEvent } from '../api/types';
import { markersOf, spotsOf, textOf, type Marker } from './markers';

const event = (kind: ClusterEvent['kind'], values: Partial<ClusterEvent> = {}): ClusterEvent => ({
  ...{ at: 1_000, kind, detail: '', by: '', topic: '', channel: '', node: '', id: null },
  ...values,
});

test('an event says what happened to what, and who did it', () => {
  expect(textOf(event('paused', { detail: 'orders / billing', by: 'ana' }))).toBe('Paused orders / billing by ana');
  expect(textOf(event('node_down', { node: 'n:4151', detail: 'refused' }))).toBe('Node down: n:4151 (refused)');
  expect(textOf(event('node_up', { node: 'n:4151' }))).toBe('Node up: n:4151');
  expect(textOf(event('alert_fired', { detail: 'Backlog: orders' }))).toBe('Alert fired: Backlog: orders');
  expect(textOf(event('report_run', { detail: 'Capacity failed', by: 'ana' }))).toBe('Report Capacity failed, requested by ana');
});

const DRAWN: Record<ClusterEvent['kind'], [text: string, tone: Marker['tone']]> = {
  paused: ['Paused orders by ana', 'warn'],
  unpaused: ['Unpaused orders by ana', 'quiet'],
  emptied: ['Emptied orders by ana', 'warn'],
  rewound: ['Rewound orders by ana', 'warn'],
  deleted: ['Deleted orders by ana', 'bad'],
  tombstoned: ['Tombstoned orders by ana', 'bad'],
  drain_begun: ['Began to drain orders by ana', 'warn'],
  drain_cancelled: ['Cancelled the drain of orders by ana', 'quiet'],
  handed_over: ['Handed over orders by ana', 'warn'],
  node_down: ['Node down: n:4151 (orders)', 'bad'],
  node_up: ['Node up: n:4151 (orders)', 'quiet'],
  node_restarted: ['Node restarted: n:4151 (orders)', 'warn'],
  alert_fired: ['Alert fired: orders by ana', 'bad'],
  report_run: ['Report orders, requested by ana', 'quiet'],
  marked: ['Mark: orders by ana', 'note'],
};

test.each(Object.entries(DRAWN))('%s has a mark on a chart', (kind, [text, tone]) => {
  const happened = event(kind as ClusterEvent['kind'], { at: 50_000, detail: 'orders', by: 'ana', node: 'n:4151' });
  expect(spotsOf(markersOf([happened]), 100, (at) => at)).toEqual([{ x: 50, text, tone }]);
});

test('markers are in seconds, as charts are', () => {
  expect(markersOf([event('deleted', { at: 2_500, detail: 't' })])).toEqual([{ at: 2.5, text: 'Deleted t', tone: 'bad' }]);
});

test('markers outside of the chart are left out, and those that would overlap are one of the worst tone', () => {
  const marker = (at: number, tone: Marker['tone']): Marker => ({ at, text: `at ${at}`, tone });
  const all = [marker(55, 'quiet'), marker(-1, 'bad'), marker(50, 'bad'), marker(101, 'bad'), marker(80, 'warn')];
  expect(spotsOf(all, 100, (at) => at)).toEqual([
    { x: 50, text: 'at 50\nat 55', tone: 'bad' },
    { x: 80, text: 'at 80', tone: 'warn' },
  ]);
});
