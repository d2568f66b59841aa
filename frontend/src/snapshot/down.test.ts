import { expect, test } from 'vitest';
import type { ChannelRow, NodeRow, TopicRow } from '../api/types';
import { downAmong, oldFigures, unansweredText } from './down';
import type { ClusterSnapshot } from './snapshot';

const NOON = Date.UTC(2026, 10, 23, 12);

function clusterOf(...nodes: Partial<NodeRow>[]): ClusterSnapshot {
  const rows = nodes.map((node) => ({ state: 'down', depth: 0, client_count: 0, ...node }) as NodeRow);
  return {
    version: 1,
    takenAt: NOON,
    nodes: new Map(rows.map((row) => [row.id, row])),
    topics: new Map<string, TopicRow>(),
    channels: new Map<string, ChannelRow>(),
  };
}

const figuresOf = (cluster: ClusterSnapshot) => oldFigures(cluster, { page: 'overview' }).map((each) => each.figures);

test('a node that went down while it was polled keeps its figures, as of then', () => {
  const cluster = clusterOf({ id: 'a:1', start_time: 1, down_since: NOON - 5000, depth: 7, client_count: 2 });
  expect(figuresOf(cluster)).toEqual(['Its share of the figures here is from then: depth 7, 2 clients. Rates do not include it.']);
});

test('a node that was down before the collector started has a time, and no figures', () => {
  const cluster = clusterOf({ id: 'a:1', start_time: 0, down_since: NOON - 5000 });
  const [node] = downAmong(cluster, []);
  expect(unansweredText(node as NodeRow, NOON)).toMatch(/^has not answered since /);
  expect(figuresOf(cluster)).toEqual(['Figures here do not include it.']);
});
