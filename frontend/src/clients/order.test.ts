import { expect, test } from 'vitest';
import { orderOf } from './order';

test('clients are ordered by topic unless an address names a column that the platform orders by', () => {
  expect([orderOf('ready_count'), orderOf('weight'), orderOf(undefined)]).toEqual(['ready_count', 'topic', 'topic']);
});
