/** Longest time that a busy page delays work, in ms. */
const AT_MOST_MS = 1000;

/** Run `work` when the page has drawn what it has and waits for input. */
export function whenIdle(work: () => void): void {
  // Safari has no idle callbacks.
  if ('requestIdleCallback' in window) window.requestIdleCallback(work, { timeout: AT_MOST_MS });
  else requestAnimationFrame(() => setTimeout(work));
}

/** Run `work` in a task of its own, soon. Other than timers, this is not slowed down in a hidden page. */
export function inNextTask(work: () => void): void {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    work();
  };
  port2.postMessage(null);
}
