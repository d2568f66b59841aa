import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { repeated } from './polling';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('the next request is sent some time after the answer, not after the request', async () => {
  let answer = (): void => {};
  const ask = vi.fn(() => new Promise<void>((resolve) => (answer = resolve)));
  repeated(ask, 1000);
  await vi.advanceTimersByTimeAsync(5000);
  expect(ask).toHaveBeenCalledTimes(1);
  answer();
  await vi.advanceTimersByTimeAsync(999);
  expect(ask).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(ask).toHaveBeenCalledTimes(2);
});

test('a stop during a request is signalled to it, and ends the requests', async () => {
  let answer = (): void => {};
  const seen: boolean[] = [];
  const ask = vi.fn(async (stopped: () => boolean) => {
    await new Promise<void>((resolve) => (answer = resolve));
    seen.push(stopped());
  });
  const stop = repeated(ask, 1000, 200);
  await vi.advanceTimersByTimeAsync(200);
  stop();
  answer();
  await vi.advanceTimersByTimeAsync(5000);
  expect([seen, ask.mock.calls.length]).toEqual([[true], 1]);
});
