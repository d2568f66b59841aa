/** When work is done: once the page is idle, or in a task of its own. */

/** Longest time that a busy page delays work, in ms. */
const AT_MOST_MS = 1000;

/** Run `work` when the page has drawn what it has and waits for input. */
export function whenIdle(work: () => void): void {
  // Safari has no idle callbacks.
  if ('requestIdleCallback' in window) window.requestIdleCallback(work, { timeout: AT_MOST_MS });
  else requestAnimationFrame(() => setTimeout(work));
}

const waiting: (() => void)[] = [];
let port: MessagePort | undefined;

/** Run `work` in a separate task, in the order of the calls. Unlike a timer, it is not throttled in a hidden page. */
export function inNextTask(work: () => void): void {
  if (port === undefined) {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => waiting.shift()?.();
    port = port2;
  }
  waiting.push(work);
  port.postMessage(null);
}
