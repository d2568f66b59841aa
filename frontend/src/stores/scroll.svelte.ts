/** Scroll positions of the page and of its tables, kept for each entry of the browser's history. */
type Positions = { page: number; tables: ReadonlyMap<string, number> };

/** Number of drawn frames, some seconds, within which a page has to be tall enough for its position. */
const MAX_FRAMES = 180;
/** Events of a user who scrolls or acts on the page; they end a restoration. */
const USER_EVENTS = ['wheel', 'touchstart', 'keydown', 'pointerdown'] as const;

const boxes = new Map<string, HTMLElement>();

/** Keep the position of a table that scrolls. Returns a function that ends it. */
export function registerBox(name: string, box: HTMLElement): () => void {
  boxes.set(name, box);
  return () => {
    if (boxes.get(name) === box) boxes.delete(name);
  };
}

export class ScrollStore {
  #kept = new Map<string, Positions>();
  #stop = (): void => {};

  save(entry: string): void {
    this.#kept.set(entry, { page: window.scrollY, tables: new Map([...boxes].map(([name, box]) => [name, box.scrollTop])) });
  }

  /** Scroll to where `entry` was left, as soon as its page is tall enough, unless the user scrolls before. */
  restore(entry: string): void {
    this.#stop();
    const { page, tables } = this.#kept.get(entry) ?? { page: 0, tables: new Map<string, number>() };
    let left = MAX_FRAMES;
    let stopped = false;
    const stop = (): void => {
      stopped = true;
      for (const event of USER_EVENTS) window.removeEventListener(event, stop);
    };
    const step = (): void => {
      if (stopped) return;
      window.scrollTo(0, page);
      let there = Math.abs(window.scrollY - page) <= 1;
      for (const [name, top] of tables) {
        const box = boxes.get(name);
        if (box) box.scrollTop = top;
        if (top > 0 && (!box || Math.abs(box.scrollTop - top) > 1)) there = false;
      }
      if (there || --left === 0) stop();
      else requestAnimationFrame(step);
    };
    for (const event of USER_EVENTS) window.addEventListener(event, stop, { passive: true });
    this.#stop = stop;
    requestAnimationFrame(step);
  }
}
