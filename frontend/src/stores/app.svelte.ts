/** The shared instances of the stores. */
import { connectBrowser } from '../api/socket';
import { actOnMany, firingAlerts, history, recentHistory } from '../api/client';
import { ActionStore } from './actions.svelte';
import { AlertStore } from './alerts.svelte';
import { BulkStore } from './bulk.svelte';
import { CreatedStore } from './created.svelte';
import { FeedStore } from './feed.svelte';
import type { LoadHistory } from './history.svelte';
import { AlertNews } from './news.svelte';
import { iso } from '../history/window';
import { OverlayStore } from './overlay.svelte';
import { Router } from './router.svelte';
import { SessionStore } from './session.svelte';
import { ThemeStore } from './theme.svelte';
import { ToastStore } from './toasts.svelte';

export const session = new SessionStore();
export const feed = new FeedStore(connectBrowser, {
  onLost: () => void session.check(),
  loadRecent: recentHistory,
  frame: (draw) => void requestAnimationFrame(draw),
});
export const router = new Router();
export const theme = new ThemeStore();
export const actions = new ActionStore();
export const bulk = new BulkStore(actOnMany);
export const created = new CreatedStore();
export const toasts = new ToastStore();
/** Maximum length of the list; the counts include all alerts. */
export const MAX_FIRING = 2000;
export const alerts = new AlertStore(() => firingAlerts(MAX_FIRING), new AlertNews(toasts));
export const overlay = new OverlayStore();
export const loadHistory: LoadHistory = async (scope, metrics, from, to) => {
  const kept = await history({ ...scope, series: metrics.join(','), from: iso(from), ...(to === null ? {} : { to: iso(to) }) });
  return {
    stepSeconds: kept.step_s,
    columns: [kept.times, ...metrics.map((metric) => kept.metrics[metric] ?? kept.times.map(() => null))],
  };
};
