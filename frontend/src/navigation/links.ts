import { BASE, based } from '../api/base';

/** Events that precede every way of opening a link. */
export const BEFORE_OPENING = ['pointerover', 'pointerdown', 'focusin'] as const;

/** Give a link the base path, so that it leads to the same cluster in a new tab too. */
export function rebase(event: Event): void {
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  const href = link?.getAttribute('href');
  if (BASE === '' || !link || !href?.startsWith('/') || link.target || href.startsWith('//')) return;
  if (based(href) !== href) link.setAttribute('href', based(href));
}
