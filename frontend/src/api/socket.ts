/** The websocket to the collector's snapshot, reduced to what a store needs; tests pass their own `Connect`. */
import { feedPath, socketUrl, takeSocket } from './early';
import type { BrowserMessage, ServerMessage, ViewOf } from './types';
import { received } from './wire';

export type SocketEvents = {
  opened(): void;
  message(message: ServerMessage): void;
  /** Called once: if the socket did not open, broke, or was closed by the platform. */
  closed(): void;
};
export type Socket = { send(message: BrowserMessage): void; close(): void };
/** Connects with a view, which the first snapshot is of. */
export type Connect = (view: ViewOf, events: SocketEvents) => Socket;

const LONGEST_RETRY_MS = 10_000;

/** Delay before connection attempt `attempts`, doubling from half a second. */
export function retryDelayMs(attempts: number): number {
  return Math.min(LONGEST_RETRY_MS, 500 * 2 ** Math.min(attempts, 10));
}

type Events<Message> = { opened(): void; message(message: Message): void; closed(code: number): void };

/** Open a websocket below the cluster's path. Texts for which `read` returns null are ignored. */
export function openSocket<Received, Sent>(
  path: string,
  read: (text: string) => Received | null,
  events: Events<Received>,
): { send(message: Sent): void; close(): void } {
  const { socket, missed } = takeSocket(socketUrl(window.location, path));
  let wanted = true;
  socket.onopen = () => wanted && events.opened();
  socket.onmessage = (event: MessageEvent<string>) => {
    const message = wanted ? read(event.data) : null;
    if (message !== null) events.message(message);
  };
  socket.onclose = (event) => wanted && events.closed(event.code);
  queueMicrotask(() => missed.forEach((event) => socket.dispatchEvent(event)));
  return {
    send: (message) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
    },
    close: () => {
      wanted = false;
      socket.close();
    },
  };
}

export const connectBrowser: Connect = (view, events) => openSocket(feedPath(view), received, events);
