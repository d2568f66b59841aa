import { expect, test } from 'vitest';
import { fieldErrorsIn, refusal } from './client';
import { socketUrl } from './socket';

test('a refusal is shown in the API’s own words, as a sentence', () => {
  expect(refusal(401, 'Unauthorized', { message: 'incorrect user name or password' })).toBe(
    'Incorrect user name or password.',
  );
  expect(refusal(503, '', { message: 'Is the collector running?' })).toBe('Is the collector running?');
});

test('an answer that is not the API’s is named by its status', () => {
  expect(refusal(502, 'Bad Gateway', null)).toBe('The platform answered 502 Bad Gateway.');
  expect(refusal(500, '', '<html>')).toBe('The platform answered 500.');
});

test('errors by field are taken from the API’s answers, and from no other body', () => {
  const errors = [{ field: 'name', message: 'a rule needs one' }];
  expect(fieldErrorsIn({ message: 'name: a rule needs one', field_errors: errors })).toEqual(errors);
  for (const body of [null, 'no', { message: 'no' }, { field_errors: 'no' }, { field_errors: [null, { field: 1 }] }]) {
    expect(fieldErrorsIn(body)).toEqual([]);
  }
});

test('the live feed is asked for where the page came from, encrypted if the page was', () => {
  expect(socketUrl({ protocol: 'http:', host: '127.0.0.1:4171' })).toBe('ws://127.0.0.1:4171/ws/cluster');
  expect(socketUrl({ protocol: 'https:', host: 'nsq.example' })).toBe('wss://nsq.example/ws/cluster');
});
