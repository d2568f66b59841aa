import { expect, test } from 'vitest';
import type { DefinitionChange } from '../api/types';
import { costOf, failureOf, failureTitle, inOrder, numbersOf, summaryOf, textOf } from './review';

const change = (values: Partial<DefinitionChange>): DefinitionChange => ({
  section: 'rules',
  name: 'Backlog',
  verb: 'create',
  path: 'rules.0',
  fields: [],
  messages: 0,
  outcome: 'planned',
  detail: '',
  results: [],
  ...values,
});

test('a review says what would change in numbers', () => {
  const numbers = numbersOf([change({}), change({ verb: 'remove', messages: 1200 }), change({ verb: 'remove', messages: 1 }), change({ verb: 'keep' })]);
  expect(summaryOf(numbers, 3)).toBe('1 to create, 2 to remove, 3 unchanged, 1 not in the file');
  expect(costOf(numbers)).toBe('Removes 2 definitions, and deletes 1,201 messages. This cannot be undone.');
  expect(costOf(numbersOf([change({})]))).toBe('');
  expect(summaryOf(numbersOf([]), 0)).toBe('The file defines nothing');
});

test('what the file does not have comes last', () => {
  expect(inOrder([change({ name: 'a', verb: 'keep' }), change({ name: 'b' })]).map(({ name }) => name)).toEqual(['b', 'a']);
});

test('a failed change names the servers that failed', () => {
  const results: DefinitionChange['results'] = [
    { node: 'a:4151', target: 'nsqd', outcome: 'done', detail: '' },
    { node: 'b:4151', target: 'nsqd', outcome: 'unreachable', detail: 'connection refused' },
  ];
  expect(failureOf(change({ outcome: 'partial', results }))).toBe('nsqd b:4151: connection refused');
  expect(failureOf(change({ outcome: 'done', results }))).toBe('');
});

test('only a refusal says that an import changed nothing', () => {
  expect(failureTitle(422, false)).toBe('The file is refused; nothing was changed');
  for (const status of [0, 500, 502, 503]) {
    expect(failureTitle(status, false)).toBe('The import failed; check again to see what it has changed');
    expect(failureTitle(status, true)).toBe('The file could not be checked; nothing was changed');
  }
});

test('a file that is not UTF-8 has no text', () => {
  expect(textOf(new TextEncoder().encode('name = "Wächter"').buffer)).toBe('name = "Wächter"');
  expect(textOf(new Uint8Array([0x57, 0xe4]).buffer)).toBeNull();
});
