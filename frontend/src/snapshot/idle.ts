/** Longest time that a busy page delays work, in ms. */
const AT_MOST_MS = 1000;

/** Run `work` when the page has drawn what it has and waits for input. */
export function whenIdle(work: () => void): void {
  // Safari has no idle callbacks.
  if ('requestIdleCallback' in window) window.requestIdleCallback(work, { timeout: AT_MOST_MS });
  else requestAnimationFrame(() => setTimeout(work));
}
