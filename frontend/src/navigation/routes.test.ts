import { expect, test } from 'vitest';
import { hrefOf, parsePath, returnPath, type Route } from './routes';

/** The path in a browser's address after following the link. */
const browserPath = (href: string): string => new URL(href, 'http://platform.example').pathname;

test.each(['orders', 'metrics#ephemeral', 'a.b_c-d', '.', '..', '...', '.hidden', 'x'.repeat(64)])(
  'a topic and a channel named %s are found again at their address',
  (name) => {
    const topic: Route = { page: 'topic', topic: name };
    const channel: Route = { page: 'channel', topic: name, channel: name };
    expect(parsePath(browserPath(hrefOf(topic)))).toEqual(topic);
    expect(parsePath(browserPath(hrefOf(channel)))).toEqual(channel);
  },
);

test('an ephemeral name is percent-encoded, so that it is not a fragment', () => {
  expect(hrefOf({ page: 'topic', topic: 'clicks#ephemeral' })).toBe('/topics/clicks%23ephemeral');
});

test.each(['10.0.0.1:4151', '[::1]:4151', 'queue-1.internal:4151'])('node %s has an address', (node) => {
  expect(parsePath(browserPath(hrefOf({ page: 'node', node })))).toEqual({ page: 'node', node });
});

test.each(['/', '/topics', '/dead', '/nodes', '/counter', '/lookup', '/reports', '/audit', '/signin', '/reports/runs/17', '/reports/columns', '/reports/archive'])('%s is a page', (path) => {
  const route = parsePath(path);
  expect(route.page).not.toBe('missing');
  expect(hrefOf(route)).toBe(path);
});

test.each(['/nothing', '/topics/a/b/c', '/nodes/a/b', '/reports/runs', '/reports/runs/x', '/reports/columns/x', '/reports/archive/x', '/audit/1', '/topics/%zz'])(
  '%s is no page and says so',
  (path) => expect(parsePath(path)).toEqual({ page: 'missing', path }),
);

test('after signing in, the requested page opens', () => {
  expect(returnPath('?next=%2Ftopics%2Fclicks%2523ephemeral')).toBe('/topics/clicks%23ephemeral');
  expect(returnPath('')).toBe('/');
});

test.each([
  '//evil.example',
  'https://evil.example',
  '/\\evil.example',
  '/\t/evil.example',
  '\t//evil.example',
  '/\n\\evil.example',
  '/\r/evil.example',
  '/.//evil.example',
  '/x/..//evil.example',
  'http://',
  'javascript:alert(1)',
  'topics',
  '/signin?next=/signin',
  '/\tsignin',
])(
  'signing in never leads to %s',
  (next) => expect(returnPath(`?next=${encodeURIComponent(next)}`)).toBe('/'),
);
