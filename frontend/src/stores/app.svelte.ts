/** The one instance of each store that every page shares. */
import { connectBrowser } from '../api/socket';
import { ActionStore } from './actions.svelte';
import { FeedStore } from './feed.svelte';
import { Router } from './router.svelte';
import { SessionStore } from './session.svelte';
import { ThemeStore } from './theme.svelte';

export const session = new SessionStore();
export const feed = new FeedStore(connectBrowser, { onLost: () => void session.check() });
export const router = new Router();
export const theme = new ThemeStore();
export const actions = new ActionStore();
