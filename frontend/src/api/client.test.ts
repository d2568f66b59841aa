import { afterEach, expect, test, vi } from 'vitest';
import { ApiError, auditFacets, changePassword, fieldErrorsIn, me, publish, refusal, resultCsv, resultPdf, signIn, wholeMessage, whenUnauthorized } from './client';
import { socketUrl } from './early';

/** A platform with this answer, and the requests that it received. */
function answering(status: number, body: string): Request[] {
  const asked: Request[] = [];
  vi.stubGlobal('document', { cookie: 'csrftoken=t0ken' });
  vi.stubGlobal('fetch', async (request: Request) => {
    asked.push(request);
    return new Response(status === 204 ? null : body, { status });
  });
  return asked;
}
afterEach(() => vi.unstubAllGlobals());
const failure = (call: Promise<unknown>): Promise<unknown> => call.then(() => null, (error: unknown) => error);

test('names are escaped in paths and queries', async () => {
  const asked = answering(200, '{}');
  await wholeMessage('a&b', 'c#ephemeral', { id: '0/1', node: 'n:1' });
  const { pathname, searchParams } = new URL(asked[0]?.url ?? '');
  expect(pathname).toBe('/api/v1/messages/0%2F1');
  expect(Object.fromEntries(searchParams)).toEqual({ topic: 'a&b', channel: 'c#ephemeral', node: 'n:1' });
  expect(resultCsv(7)).toBe('/api/v1/reports/runs/7/result.csv');
});

test('a request that changes something carries the CSRF token, and JSON', async () => {
  const asked = answering(200, '{}');
  await publish({ topic: 't', bodies: ['x'] } as Parameters<typeof publish>[0]);
  await auditFacets();
  expect(asked.map(({ headers }) => headers.get('X-CSRFToken'))).toEqual(['t0ken', null]);
  expect(asked.map(({ headers }) => headers.get('Content-Type'))).toEqual(['application/json', null]);
  expect(await asked[0]?.json()).toEqual({ topic: 't', bodies: ['x'] });
});

test('an answer without a body is not a failure', async () => {
  answering(204, '');
  expect(await changePassword('a', 'b')).toBeUndefined();
});

test('a refused request rejects with status, message and errors by field', async () => {
  answering(422, JSON.stringify({ message: 'new_password: too short', field_errors: [{ field: 'new_password', message: 'too short' }] }));
  const error = await failure(changePassword('a', 'b'));
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({ status: 422, message: 'New_password: too short.', fieldErrors: [{ field: 'new_password', message: 'too short' }] });
});

test('the end of a session is reported, a wrong password is not', async () => {
  const ended = vi.fn();
  whenUnauthorized(ended);
  answering(401, '{"message":"sign in first"}');
  expect(await failure(signIn('ann', 'no'))).toMatchObject({ status: 401 });
  expect(ended).not.toHaveBeenCalled();
  expect(await failure(me())).toMatchObject({ status: 401, message: 'Sign in first.' });
  expect(ended).toHaveBeenCalledOnce();
  expect(await failure(resultPdf(7))).toMatchObject({ status: 401, message: 'Sign in first.' });
  expect(ended).toHaveBeenCalledTimes(2);
});

test('no answer, or one of another server, is reported as a sentence', async () => {
  answering(200, '<html>');
  for (const call of [auditFacets(), changePassword('a', 'b')]) {
    expect(await failure(call)).toMatchObject({ status: 0, message: expect.stringContaining('not JSON') });
  }
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('Failed to fetch')));
  expect(await failure(auditFacets())).toMatchObject({ status: 0, message: expect.stringContaining('does not answer') });
});

test('a refusal is shown with the API’s message, as a sentence', () => {
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

test('the live feed connects to the page’s host, with TLS if the page uses it', () => {
  expect(socketUrl({ protocol: 'http:', host: '127.0.0.1:4171' }, '/ws/cluster')).toBe('ws://127.0.0.1:4171/ws/cluster');
  expect(socketUrl({ protocol: 'https:', host: 'nsq.example' }, '/ws/cluster')).toBe('wss://nsq.example/ws/cluster');
});
