import { describe, expect, test } from 'vitest';
import { received } from './wire';

const empty = { nodes: {}, topics: {}, channels: {} };
const snapshot = { type: 'snapshot', version: 3, taken_at: 7, view: {}, ...empty };

describe('messages of the websocket', () => {
  test('columns become rows, with the shares of nodes by name', () => {
    const nodes = [[['a:1', false, 5, 9, null]]];
    const message = received(JSON.stringify({ ...snapshot, topics: { name: ['orders'], depth: [5], nodes } }));
    expect(message).toEqual({
      ...snapshot,
      nodes: [],
      channels: [],
      topics: [{ name: 'orders', depth: 5, nodes: [{ node: 'a:1', paused: false, depth: 5, message_count: 9, publish_rate: null }] }],
    });
  });

  test.each(['{"type":"later"}', '{}', '[]', 'null', '7', 'not JSON', '{"type":"snapshot","version":1}', '{"type":"delta"}', '{"type":"run"}', '{"type":"alerts","alerts":{}}', '{"type":"clients"}'])(
    'of an unknown type, or incomplete, is ignored: %s',
    (text) => {
      expect(received(text)).toBeNull();
    },
  );

  test('of runs, alerts and clients are passed on', () => {
    for (const message of [
      { type: 'run', run: { id: 3 } },
      { type: 'alerts', version: 2, counts: {}, alerts: [] },
      { type: 'clients', topic: 't', channel: 'c', clients: [] },
    ]) {
      expect(received(JSON.stringify(message))).toEqual(message);
    }
  });
});
