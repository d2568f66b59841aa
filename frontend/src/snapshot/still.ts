/** Time without scrolling after which the scrolling has ended. */
const REST_MS = 150;
/** A drawing waits no longer than this. Figures count as stale after three seconds. */
const LONGEST_MS = 2000;

/** The events of a browser: its next frame, each scroll of any element; and the time in ms. */
export type Browser = { frame: (then: () => void) => void; onScroll: (listener: () => void) => void; now: () => number };

/**
 * Returns a function that calls another in the next frame or, while something is scrolled, after the scrolling: drawing a
 * snapshot during it would delay its frames.
 */
export function whenStill({ frame, onScroll, now }: Browser): (draw: () => void) => void {
  let scrolledAt = -Infinity;
  onScroll(() => (scrolledAt = now()));
  return (draw) => {
    const latest = now() + LONGEST_MS;
    const look = (): void => {
      if (now() - scrolledAt < REST_MS && now() < latest) frame(look);
      else draw();
    };
    frame(look);
  };
}
