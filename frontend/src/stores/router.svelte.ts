import { based, unbased } from '../api/base';
import { BEFORE_OPENING, rebase } from '../navigation/links';
import { hrefOf, parsePath, type Route } from '../navigation/routes';
import { ScrollStore } from './scroll.svelte';

/** Pause in typing before the address changes, because browsers refuse to change it at each key. */
const WRITE_AFTER_MS = 200;

/** The current page and its query string; follows the address bar and changes it. */
export class Router {
  route = $state.raw<Route>({ page: 'overview' });
  /** Search, order and filters of the current page. Replaced as a whole at each change. */
  search = $state.raw<URLSearchParams>(new URLSearchParams());

  #write: ReturnType<typeof setTimeout> | undefined;
  #scroll = new ScrollStore();
  /** Names the current entry of the browser's history. */
  #entry = '';

  start(): () => void {
    const follow = (): void => {
      clearTimeout(this.#write);
      this.#write = undefined;
      this.#scroll.save(this.#entry);
      this.#entry = entryOf(window.history.state) ?? newEntry();
      this.#read();
      this.#scroll.restore(this.#entry);
    };
    const click = (event: MouseEvent): void => this.#click(event);
    // The browser would scroll before the page has its rows.
    window.history.scrollRestoration = 'manual';
    this.#entry = entryOf(window.history.state) ?? newEntry();
    window.history.replaceState({ entry: this.#entry }, '');
    this.#read();
    window.addEventListener('popstate', follow);
    window.addEventListener('pagehide', this.#flush);
    document.addEventListener('click', click);
    for (const kind of BEFORE_OPENING) document.addEventListener(kind, rebase, { capture: true, passive: true });
    return () => {
      window.removeEventListener('popstate', follow);
      window.removeEventListener('pagehide', this.#flush);
      document.removeEventListener('click', click);
      for (const kind of BEFORE_OPENING) document.removeEventListener(kind, rebase, { capture: true });
    };
  }

  go(target: Route | string, { replace = false }: { replace?: boolean } = {}): void {
    this.#flush();
    const href = based(typeof target === 'string' ? target : hrefOf(target));
    if (replace) window.history.replaceState({ entry: this.#entry }, '', href);
    else this.#push(href);
    this.#read();
    window.scrollTo(0, 0);
  }

  /**
   * Change parameters of the page's address; null removes one. `push` makes the change one that the back button
   * undoes; typing does not push.
   */
  set(changes: Readonly<Record<string, string | null>>, { push = false }: { push?: boolean } = {}): void {
    const next = new URLSearchParams(this.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) next.delete(name);
      else next.set(name, value);
    }
    if (next.toString() === this.search.toString()) return;
    if (push) this.#flush();
    this.search = next;
    if (push) this.#push(this.#href());
    else {
      clearTimeout(this.#write);
      this.#write = setTimeout(this.#flush, WRITE_AFTER_MS);
    }
  }

  #push(href: string): void {
    this.#scroll.save(this.#entry);
    this.#entry = newEntry();
    window.history.pushState({ entry: this.#entry }, '', href);
  }

  #href(): string {
    const search = this.search.toString();
    return window.location.pathname + (search ? `?${search}` : '');
  }

  #read(): void {
    this.route = parsePath(unbased(window.location.pathname));
    this.search = new URLSearchParams(window.location.search);
  }

  #flush = (): void => {
    if (this.#write === undefined) return;
    clearTimeout(this.#write);
    this.#write = undefined;
    window.history.replaceState({ entry: this.#entry }, '', this.#href());
  };

  /** Plain clicks on links within the app change the page; all others (new tab, download, elsewhere) are the browser's. */
  #click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target || link.hasAttribute('download') || link.origin !== window.location.origin) return;
    if (link.hash && link.pathname === window.location.pathname) return;
    if (parsePath(unbased(link.pathname)).page === 'missing') return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

let entries = 0;
const newEntry = (): string => `${performance.timeOrigin}.${++entries}`;

function entryOf(state: unknown): string | null {
  return typeof state === 'object' && state !== null && 'entry' in state && typeof state.entry === 'string' ? state.entry : null;
}
