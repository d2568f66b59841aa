import { based, unbased } from '../api/base';
import { hrefOf, parsePath, type Route } from '../navigation/routes';

/** Browsers refuse to have the address rewritten at each key; this is how long typing may rest before it is. */
const WRITE_AFTER_MS = 200;

/** The page on show and its query string; follows the address bar and writes it. */
export class Router {
  route = $state.raw<Route>({ page: 'overview' });
  /** Of the page on show: what is searched, sorted and filtered. Replaced whole at each change. */
  search = $state.raw<URLSearchParams>(new URLSearchParams());

  #write: ReturnType<typeof setTimeout> | undefined;

  start(): () => void {
    const follow = (): void => {
      clearTimeout(this.#write);
      this.#write = undefined;
      this.#read();
    };
    const click = (event: MouseEvent): void => this.#click(event);
    follow();
    window.addEventListener('popstate', follow);
    window.addEventListener('pagehide', this.#flush);
    document.addEventListener('click', click);
    return () => {
      window.removeEventListener('popstate', follow);
      window.removeEventListener('pagehide', this.#flush);
      document.removeEventListener('click', click);
    };
  }

  go(target: Route | string, { replace = false }: { replace?: boolean } = {}): void {
    this.#flush();
    const href = based(typeof target === 'string' ? target : hrefOf(target));
    if (replace) window.history.replaceState(null, '', href);
    else window.history.pushState(null, '', href);
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
    if (push) window.history.pushState(null, '', this.#href());
    else {
      clearTimeout(this.#write);
      this.#write = setTimeout(this.#flush, WRITE_AFTER_MS);
    }
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
    window.history.replaceState(null, '', this.#href());
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
