import { expect, test, vi } from 'vitest';
import type { Me } from '../api/types';
import { SessionStore } from './session.svelte';

function signedIn(role: Me['role'], topic_patterns: string[] = []): SessionStore {
  const session = new SessionStore();
  session.state = { status: 'signed-in', me: { role, topic_patterns } as Me };
  return session;
}

test('an operator of some topics may act on patterns that theirs cover', () => {
  const session = signedIn('operator', ['orders.*', 'mail?']);
  for (const pattern of ['orders.*', 'orders.eu.?', 'mail?']) expect(session.mayActOnAll(pattern), pattern).toBe(true);
  for (const pattern of ['*', 'orders*', 'mail*', 'mails']) expect(session.mayActOnAll(pattern), pattern).toBe(false);
});

test('other operators and administrators may act on all, and viewers on none', () => {
  expect(signedIn('operator').mayActOnAll('*')).toBe(true);
  expect(signedIn('admin', ['orders.*']).mayActOnAll('*')).toBe(true);
  expect(signedIn('viewer').mayActOnAll('*')).toBe(false);
  expect(new SessionStore().mayActOnAll('*')).toBe(false);
});

test('an answer about the session that arrives after signing out does not sign in again', async () => {
  const asked: ((body: unknown) => void)[] = [];
  vi.stubGlobal('document', { cookie: '' });
  vi.stubGlobal('fetch', () => new Promise<Response>((resolve) => asked.push((body) => resolve(new Response(JSON.stringify(body), { status: 200 })))));
  const session = signedIn('operator');
  const [checked, left] = [session.check(), session.signOut()];
  (await vi.waitFor(() => asked[1] ?? Promise.reject(new Error('not asked'))))({});
  await left;
  asked[0]?.({ role: 'operator', topic_patterns: [] });
  await checked;
  expect(session.state).toEqual({ status: 'anonymous', expired: false });
  vi.unstubAllGlobals();
});

test('when several requests are refused at the end of a session, the sign-in page still says that it has ended', async () => {
  vi.stubGlobal('document', { cookie: '' });
  vi.stubGlobal('fetch', async () => new Response('{"message": "not signed in"}', { status: 401 }));
  const session = signedIn('operator');
  await Promise.all([session.check(), session.check()]);
  expect(session.state).toEqual({ status: 'anonymous', expired: true });
  vi.unstubAllGlobals();
});
