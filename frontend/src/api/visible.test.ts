import { expect, test } from 'vitest';
import { received } from './wire';
import { visible, visibleBody, withVisibleText } from './visible';

test.each([
  ['pay\u202egnp.exe', 'pay\\u{202E}gnp.exe'],
  ['a\u2066b\u2069', 'a\\u{2066}b\\u{2069}'],
  ['wor\u200bker', 'wor\\u{200B}ker'],
  ['wor\u200dker', 'wor\\u{200D}ker'],
  ['\ufeffworker', '\\u{FEFF}worker'],
  ['a\u0000\u001b[31m\n', 'a\\u{0000}\\u{001B}[31m\\u{000A}'],
  ['a\u0085b\u2028c', 'a\\u{0085}b\\u{2028}c'],
  ['tag\u{e0041}', 'tag\\u{E0041}'],
  ['half \ud800', 'half \\u{D800}'],
])('%j is shown with its control characters visible', (text, shown) => expect(visible(text)).toBe(shown));

test.each(['worker-7', 'größe', '日本語', 'a\\u{202E}', '🙂'])('%s is shown as it is', (text) => expect(visible(text)).toBe(text));

test('right-to-left letters are isolated from what stands beside them', () => {
  expect(`${visible('עובד')} (10.0.0.7)`).toBe('\u2068עובד\u2069 (10.0.0.7)');
});

test('a body keeps its lines, tabs and joined characters, and shows what reorders it', () => {
  expect(visibleBody('{\n\t"a": "👩\u200d💻\u202ex"\r\n}')).toBe('{\n\t"a": "👩\u200d💻\\u{202E}x"\r\n}');
});

test('every text of an answer is made visible, wherever it stands', () => {
  const answer = { clients: [{ client_id: 'a\u202eb', in_flight_count: 3, deadline: null, tls: true }] };
  expect(withVisibleText(answer)).toEqual({ clients: [{ client_id: 'a\\u{202E}b', in_flight_count: 3, deadline: null, tls: true }] });
});

test('so are the clients and nodes that the websocket sends', () => {
  const clients = { type: 'clients', topic: 't', channel: 'c', clients: [{ hostname: 'a\u202eb' }] };
  expect(received(JSON.stringify(clients))).toMatchObject({ clients: [{ hostname: 'a\\u{202E}b' }] });
  const columns = { id: ['n:1'], hostname: ['a\u202eb'] };
  const nothing = { put: {}, set: {}, drop: [] };
  const delta = { type: 'delta', base: 1, version: 2, taken_at: 3, nodes: { ...nothing, put: columns }, topics: nothing, channels: nothing };
  expect(received(JSON.stringify(delta))).toMatchObject({ nodes: { put: [{ hostname: 'a\\u{202E}b' }] } });
});
