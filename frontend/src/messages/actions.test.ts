import { expect, test } from 'vitest';
import type { MatchingMessages, PeekedMessage } from '../api/types';
import { costOfAll, costOfOne, doneText, refusalOf } from './actions';

const message = { node: 'a:4151', id: '0040', size: 12, visibility: 'whole', client: null } as PeekedMessage;
const found: MatchingMessages = { matching: 1200, total: 5000, withheld: 0, as_of: 0, nodes: [{ node: 'a:4151', total: 5000, error: '' }] };

test('finishing says how many messages are lost', () => {
  expect(costOfOne('finish', message, 'billing', '')).toMatchObject({ lost: 1 });
  const cost = costOfAll('finish', found, 'billing', '', 0);
  expect(cost.lost).toBe(1200);
  expect(cost.sentences[0]).toBe('1,200 of 5,000 messages match and are removed from channel billing, and no consumer processes them any more.');
});

test('a copy loses nothing and names its target', () => {
  const cost = costOfOne('copy', message, 'billing', 'returns');
  expect(cost.lost).toBe(0);
  expect(cost.sentences[0]).toBe('1 message of 12 B on a:4151 is published to topic returns on its node.');
});

test('the client that has the message is named', () => {
  const client = { client_id: 'tortoise', hostname: 'box', remote_address: '', user_agent: '' };
  expect(costOfOne('finish', { ...message, client }, 'billing', '').sentences).toContain('It is in flight with tortoise, whose FIN will fail.');
});

test('nodes that could not be searched are named as left out', () => {
  const nodes = [...found.nodes, { node: 'go:4151', total: null, error: 'cannot list' }];
  expect(costOfAll('move', { ...found, nodes }, 'billing', 'returns', 0)).toMatchObject({ silent: ['go:4151 is left out: cannot list.'], nodes: ['a:4151'] });
});

test('masked bodies are not copied or moved', () => {
  expect(refusalOf('move', { visibility: 'masked' })).not.toBe('');
  expect(refusalOf('finish', { visibility: 'masked' })).toBe('');
  expect(refusalOf('copy', { visibility: 'whole' })).toBe('');
});

test('a message that has left meanwhile was not acted on', () => {
  expect(doneText('move', '0040', 1, 'returns')).toBe('Message 0040 was moved to returns.');
  expect(doneText('finish', '0040', 0, '')).toBe('Message 0040 is no longer in the channel.');
});
