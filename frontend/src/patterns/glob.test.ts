import { describe, expect, it } from 'vitest';
import { globMatches } from './glob';

describe("an operator's patterns", () => {
  it.each([
    ['orders', 'orders', true],
    ['orders', 'orders.eu', false],
    ['orders.*', 'orders.eu', true],
    ['orders.*', 'ordersxeu', false],
    ['*', 'anything#ephemeral', true],
    ['log-?', 'log-a', true],
    ['log-?', 'log-ab', false],
    ['log-[a-c]', 'log-b', true],
    ['log-[!a-c]', 'log-b', false],
    ['log-[!a-c]', 'log-d', true],
    ['log-[z-ab]', 'log-b', true],
    ['log-[z-ab]', 'log-z', false],
    ['log-[z-a]', 'log-m', false],
    ['log-[!z-a]', 'log-m', true],
    ['log-[', 'log-[', true],
    ['x#ephemeral', 'x#ephemeral', true],
  ])('%s and %s: %s', (pattern, topic, matches) => expect(globMatches(pattern, topic)).toBe(matches));
});
