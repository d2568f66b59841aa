import { hrefOf, parsePath, type Route } from './routes';

/** The page on show; follows the address bar and writes it. */
export class Router {
  route = $state.raw<Route>({ page: 'overview' });

  start(): () => void {
    const follow = (): void => {
      this.route = parsePath(window.location.pathname);
    };
    const click = (event: MouseEvent): void => this.#click(event);
    follow();
    window.addEventListener('popstate', follow);
    document.addEventListener('click', click);
    return () => {
      window.removeEventListener('popstate', follow);
      document.removeEventListener('click', click);
    };
  }

  go(target: Route | string, { replace = false }: { replace?: boolean } = {}): void {
    const href = typeof target === 'string' ? target : hrefOf(target);
    if (replace) window.history.replaceState(null, '', href);
    else window.history.pushState(null, '', href);
    this.route = parsePath(window.location.pathname);
    window.scrollTo(0, 0);
  }

  /** Plain clicks on links within the app change the page; all others (new tab, download, elsewhere) are the browser's. */
  #click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target || link.hasAttribute('download') || link.origin !== window.location.origin) return;
    if (link.hash && link.pathname === window.location.pathname) return;
    if (parsePath(link.pathname).page === 'missing') return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}
