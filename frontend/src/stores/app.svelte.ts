/** The shared instances of the stores. */
import { connectBrowser } from '../api/socket';
import { actOnMany, firingAlerts, history } from '../api/client';
import { ActionStore } from './actions.svelte';
import { AlertStore } from './alerts.svelte';
import { BulkStore } from './bulk.svelte';
import { FeedStore } from './feed.svelte';
import type { LoadHour } from './hour.svelte';
import { AlertNews } from './news.svelte';
import { OverlayStore } from './overlay.svelte';
import { Router } from './router.svelte';
import { SessionStore } from './session.svelte';
import { ThemeStore } from './theme.svelte';
import { ToastStore } from './toasts.svelte';

export const session = new SessionStore();
export const feed = new FeedStore(connectBrowser, {
  onLost: () => void session.check(),
  frame: (draw) => void requestAnimationFrame(draw),
});
export const router = new Router();
export const theme = new ThemeStore();
export const actions = new ActionStore();
export const bulk = new BulkStore(actOnMany);
export const toasts = new ToastStore();
/** A list longer than this is cut; the counts are of all. */
export const FIRING_MOST = 2000;
export const alerts = new AlertStore(() => firingAlerts(FIRING_MOST), new AlertNews(toasts));
export const overlay = new OverlayStore();
export const loadHour: LoadHour = async (scope, metrics) => {
  const kept = await history(scope);
  return [kept.times, ...metrics.map((metric) => kept.metrics[metric] ?? kept.times.map(() => null))];
};
