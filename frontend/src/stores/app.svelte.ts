/** The shared instances of the stores. */
import { connectBrowser } from '../api/socket';
import { cancelJob, firingAlerts, jobs as newestJobs, recentHistory, startJob } from '../api/client';
import { ActionStore } from './actions.svelte';
import { AlertStore } from './alerts.svelte';
import { BulkStore } from './bulk.svelte';
import { CreatedStore } from './created.svelte';
import { FeedStore } from './feed.svelte';
import { stored } from '../jobs/dismissed';
import { JobStore } from './jobs.svelte';
import { AlertNews } from './news.svelte';
import { OverlayStore } from './overlay.svelte';
import { Router } from './router.svelte';
import { SessionStore } from './session.svelte';
import { whenStill } from '../snapshot/still';
import { inNextTask, whenIdle } from '../snapshot/tasks';
import { ThemeStore } from './theme.svelte';
import { ToastStore } from './toasts.svelte';
import { ViewStore } from './views.svelte';

export const session = new SessionStore();
export const feed = new FeedStore(connectBrowser, {
  onLost: () => void session.check(),
  onAccount: () => void session.check(),
  loadRecent: recentHistory,
  frame: whenStill({
    // Not in the frame itself, whose layout and painting would be part of the same long task.
    frame: (then) => void requestAnimationFrame(() => setTimeout(then)),
    onScroll: (listener) => document.addEventListener('scroll', listener, { capture: true, passive: true }),
    now: () => performance.now(),
  }),
  afterFrame: whenIdle,
  task: inNextTask,
});
export const router = new Router();
export const theme = new ThemeStore();
export const actions = new ActionStore();
export const jobs = new JobStore({ start: startJob, list: newestJobs, cancel: cancelJob }, stored);
export const bulk = new BulkStore((kind, subjects) => jobs.start(kind, subjects));
export const created = new CreatedStore();
export const toasts = new ToastStore();
/** Maximum length of the list; the counts include all alerts. */
export const MAX_FIRING = 2000;
export const alerts = new AlertStore(() => firingAlerts(MAX_FIRING), new AlertNews(toasts));
export const views = new ViewStore();
export const overlay = new OverlayStore();
