import { expect, test } from 'vitest';
import { goneFrom, suggestedName } from './address';

test('a view that names things that are gone says which', () => {
  const snapshot = { topics: new Map([['orders', {}]]), channels: new Map([['orders/billing', {}]]), nodes: new Map() } as unknown as Parameters<typeof goneFrom>[1];
  expect(goneFrom('/topics?q=gone', snapshot)).toBe('');
  expect(goneFrom('/topics/orders?window=1h', snapshot)).toBe('');
  expect(goneFrom('/topics/orders/billing', snapshot)).toBe('');
  expect(goneFrom('/topics/orders/shipping', snapshot)).toBe('channel shipping of orders');
  expect(goneFrom('/topics/invoices/billing', snapshot)).toBe('topic invoices');
  expect(goneFrom('/nodes/a%3A4151', snapshot)).toBe('node a:4151');
  expect(goneFrom('/no/such/page/at/all', snapshot)).toBe('this page');
});

test('a name is suggested from the page and what it shows', () => {
  expect(suggestedName('/')).toBe('overview');
  expect(suggestedName('/topics?q=orders&filter=backlog,paused&sort=-depth')).toBe('topics: orders, backlog,paused');
  expect(suggestedName('/topics/a%23ephemeral')).toBe('topics/a#ephemeral');
});
