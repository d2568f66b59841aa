/** The websocket to the collector's snapshot, reduced to what a store needs; tests pass their own `Connect`. */
import { based } from './base';
import type { BrowserMessage, ServerMessage } from './types';
import { received } from './wire';

export type SocketEvents = {
  opened(): void;
  message(message: ServerMessage): void;
  /** Called once: if the socket did not open, broke, or was closed by the platform. */
  closed(): void;
};
export type Socket = { send(message: BrowserMessage): void; close(): void };
export type Connect = (events: SocketEvents) => Socket;

export function socketUrl(location: { protocol: string; host: string }): string {
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${based('/ws/cluster')}`;
}

export const connectBrowser: Connect = (events) => {
  const socket = new WebSocket(socketUrl(window.location));
  let wanted = true;
  socket.onopen = () => wanted && events.opened();
  socket.onmessage = (event: MessageEvent<string>) => {
    const message = wanted ? received(event.data) : null;
    if (message !== null) events.message(message);
  };
  socket.onclose = () => wanted && events.closed();
  return {
    send: (message) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
    },
    close: () => {
      wanted = false;
      socket.close();
    },
  };
};
