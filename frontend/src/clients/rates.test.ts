import { expect, test } from 'vitest';
import type { WatchedClient } from '../api/types';
import { ClientRates, shareInUse } from './rates';

const client = (remote_address: string, finish_rate: number | null): WatchedClient => ({ node: 'n', remote_address, finish_rate }) as WatchedClient;

test('a client has its rates in order, with a gap where none is known; one that left is forgotten', () => {
  const rates = new ClientRates();
  rates.record([client('a', null), client('b', 1)]);
  rates.record([client('a', 2)]);
  rates.record([client('a', 3), client('b', 4)]);
  expect(rates.of(client('a', 0))).toEqual([null, 2, 3]);
  expect(rates.of(client('b', 0))).toEqual([4]);
});

test('only the last two minutes are kept', () => {
  const rates = new ClientRates();
  for (let poll = 0; poll < 200; poll++) rates.record([client('a', poll)]);
  expect([rates.of(client('a', 0)).length, rates.of(client('a', 0))[0]]).toEqual([120, 80]);
});

test('a client that is not ready for messages has no share in use', () => {
  expect(shareInUse({ in_flight_count: 5, ready_count: 10 })).toBe(0.5);
  expect(shareInUse({ in_flight_count: 5, ready_count: 0 })).toBeNull();
});
