/** Scheme, host and port of this page; a test has no page. */
export const ORIGIN: string = typeof location === 'undefined' ? 'http://localhost' : location.origin;

/** The path of the platform behind a proxy that serves other sites too: `/some/where`, empty at the root. */
export const BASE: string =
  typeof document === 'undefined'
    ? ''
    : (document.querySelector<HTMLMetaElement>('meta[name="base-path"]')?.content ?? '');

/** A path with the base, for requests. */
export function based(path: string, base: string = BASE): string {
  return base === '' || path === base || path.startsWith(`${base}/`) ? path : base + path;
}

/** A path without the base. */
export function unbased(path: string, base: string = BASE): string {
  return path === base || path.startsWith(`${base}/`) ? path.slice(base.length) || '/' : path;
}
