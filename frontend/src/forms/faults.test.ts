import { expect, test } from 'vitest';
import { ApiError } from '../api/client';
import { faultsOf } from './faults';

const FIELDS = ['name', 'threshold', 'topic_pattern', 'notifiers'];
const refused = (...errors: [string, string][]): ApiError =>
  new ApiError(422, 'All of it.', errors.map(([field, message]) => ({ field, message })));

test('each error is shown beside its field, as a sentence', () => {
  expect(faultsOf(refused(['threshold', 'too large'], ['topic_pattern', '‘x; name: y’ is no glob']), FIELDS)).toEqual({
    threshold: 'Too large.',
    topic_pattern: '‘x; name: y’ is no glob.',
  });
});

test('an error in a part of a field is shown beside the field', () => {
  expect(faultsOf(refused(['notifiers.0', 'too long']), FIELDS)).toEqual({ notifiers: 'Too long.' });
  expect(faultsOf(refused(['name_of', 'too long']), FIELDS)).toEqual({ form: 'Name_of: too long.' });
});

test('several errors of one field are several sentences', () => {
  expect(faultsOf(refused(['name', 'too short.'], ['name', 'too common.']), FIELDS)).toEqual({ name: 'Too short. Too common.' });
});

test('an error without a field belongs to the whole form', () => {
  expect(faultsOf(new ApiError(422, 'Name: a rule needs one.'), FIELDS)).toEqual({ form: 'Name: a rule needs one.' });
  expect(faultsOf(new Error('The platform does not answer.'), FIELDS)).toEqual({ form: 'The platform does not answer.' });
});
