import { expect, test } from 'vitest';
import { areEqual, entriesOf, nameOf, textOf, valuesOf, valuesOfJson, variantsOf } from './values';

test('values are read as they are shown', () => {
  const values = { max_attempts: 5, retry_delay: '1s..5m', dead_topic: '123', empty: '', on: true };
  expect(textOf(values)).toBe('max_attempts=5 retry_delay=1s..5m dead_topic="123" empty= on=true');
  expect(valuesOf(entriesOf(values))).toEqual(values);
});

test('rows without a key are left out, and a key is given once', () => {
  expect(valuesOf([{ key: ' max_attempts ', value: ' 5 ' }, { key: '', value: '7' }])).toEqual({ max_attempts: 5 });
  expect(valuesOf([{ key: 'a', value: '1' }, { key: 'a', value: '2' }])).toBe('a is given twice.');
});

test('only an object is a policy', () => {
  expect(valuesOfJson('{"max_attempts": 5}')).toEqual({ max_attempts: 5 });
  for (const text of ['', '5', '[]', 'null', '{']) expect(valuesOfJson(text)).toContain('Enter a JSON object');
});

test('a policy of all channels is named by its topics', () => {
  expect(nameOf({ topic_pattern: 'orders.*', channel_pattern: '*' })).toBe('orders.*');
  expect(nameOf({ topic_pattern: 'orders.*', channel_pattern: 'billing' })).toBe('orders.* / billing');
});

test('nodes with equal values are together, those that lack it last', () => {
  const five = { max_attempts: 5, retry_delay: '1s..5m' };
  const nodes = [
    { node: 'a', policy: null },
    { node: 'b', policy: { max_attempts: 1 } },
    { node: 'c', policy: five },
    { node: 'd', policy: { retry_delay: '1s..5m', max_attempts: 5 } },
  ];
  expect(variantsOf({ policy: five, nodes }).map((each) => each.nodes)).toEqual([['c', 'd'], ['b'], ['a']]);
  expect(areEqual(five, null)).toBe(false);
});
