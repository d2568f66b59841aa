import { describe, expect, it } from 'vitest';
import { base64Of, bytesOf, delayMs, headersOf, hexOf, messagesOf, publishFaults, textOf } from './bodies';
import { ApiError } from '../api/client';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('a body', () => {
  it('is unchanged after base64, for every byte', () => {
    const all = Uint8Array.from({ length: 70_000 }, (_, n) => n % 256);
    expect(bytesOf(base64Of(all))).toEqual(all);
  });
  it('is text also where the cut falls within a character', () => {
    const cut = bytes('größe').subarray(0, 3);
    expect(textOf(cut, true)).toBe('gr');
    expect(textOf(cut)).toBeNull();
  });
  it('has its bytes and its letters in hex', () => {
    expect(hexOf(bytes('NSQ\n'))).toBe(`0000  4e 53 51 0a${' '.repeat(36)}  NSQ.`);
  });
});

describe('typed messages', () => {
  it('is one message, or one per line', () => {
    expect(messagesOf('a\n\nb\r\n', true)).toEqual(['a', 'b']);
    expect(messagesOf('a\nb', false)).toEqual(['a\nb']);
    expect(messagesOf('', false)).toEqual([]);
  });
  it('has headers, one a line', () => {
    expect(headersOf('')).toEqual({});
    expect(headersOf('Tenant: acme\r\n\n url:http://a:1 \nempty:')).toEqual({ Tenant: 'acme', url: 'http://a:1', empty: '' });
    expect(['tenant', 'a: 1\na: 2'].map(headersOf)).toEqual([null, null]);
  });
  it('is a delay in several ways', () => {
    expect(['', '5', '1.5s', '1h30m', '250ms'].map(delayMs)).toEqual([0, 5000, 1500, 5_400_000, 250]);
    expect(['soon', '-1', '5 d'].map(delayMs)).toEqual([null, null, null]);
  });
});

describe('a refused publish', () => {
  const refused = new ApiError(422, 'no', [{ field: 'bodies.1', message: 'not JSON' }]);

  it('names which of several messages is at fault', () => {
    expect(publishFaults(refused, 2)).toEqual({ bodies: 'Message 2: not JSON.' });
    expect(publishFaults(new ApiError(422, 'no', [{ field: 'defer_ms', message: 'too long' }]), 2)).toEqual({ defer_ms: 'Too long.' });
  });

  it('does not number a single one', () => {
    expect(publishFaults(refused, 1)).toEqual({ bodies: 'Not JSON.' });
  });
});
