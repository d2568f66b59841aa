/** A websocket that is opened before the page's code is loaded, and the addresses of websockets. */
import { based } from './base';
import type { ViewOf } from './types';

let early: { url: string; socket: WebSocket; missed: Event[] } | null = null;

export function socketUrl(location: { protocol: string; host: string }, path: string): string {
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${based(path)}`;
}

/** The path of the live feed with a view. */
export function feedPath(view: ViewOf): string {
  const query = new URLSearchParams(view).toString();
  return query === '' ? '/ws/cluster' : `/ws/cluster?${query}`;
}

/** Open a websocket whose events wait for `takeSocket`. */
export function openEarly(url: string): void {
  const socket = new WebSocket(url);
  const missed: Event[] = [];
  socket.onopen = socket.onmessage = socket.onclose = (event: Event) => void missed.push(event);
  early = { url, socket, missed };
}

/** The websocket that was opened early to this address, or a new one. `missed` are its events so far. */
export function takeSocket(url: string): { socket: WebSocket; missed: readonly Event[] } {
  const opened = early;
  early = null;
  if (opened?.url === url) return opened;
  opened?.socket.close();
  return { socket: new WebSocket(url), missed: [] };
}
