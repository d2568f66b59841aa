/** The websocket of a tail, reduced to what its store needs; tests pass their own `TailConnect`. */
import { reader } from './message';
import { openSocket } from './socket';
import type { TailMessage } from './types';

export type TailSocket = { send(message: object): void; close(): void };
export type TailConnect = (events: { opened(): void; message(message: TailMessage): void; closed(code: number): void }) => TailSocket;

const readMessage = reader<TailMessage>({
  started: () => true,
  account: () => true,
  ask: ({ nodes }) => Array.isArray(nodes),
  messages: ({ messages, skipped, nodes }) => Array.isArray(messages) && typeof skipped === 'number' && typeof nodes === 'number',
  error: ({ message }) => typeof message === 'string',
});

export const connectTail: TailConnect = (events) => openSocket('/ws/tail', readMessage, events);
