import { based } from '../api/base';
import { reader } from '../api/message';
import type { TailMessage } from '../api/types';

export type TailedMessage = Extract<TailMessage, { type: 'messages' }>['messages'][number];

export type TailState =
  | { status: 'connecting' }
  | { status: 'asking'; nodes: readonly { node: string; depth: number }[] }
  | { status: 'running' | 'paused' }
  | { status: 'failed'; message: string };

export type TailSocket = { send(message: object): void; close(): void };
export type TailConnect = (events: { opened(): void; message(message: TailMessage): void; closed(): void }) => TailSocket;

const KEPT = 500;

const readMessage = reader<TailMessage>({
  started: () => true,
  ask: ({ nodes }) => Array.isArray(nodes),
  messages: ({ messages, skipped, nodes }) => Array.isArray(messages) && typeof skipped === 'number' && typeof nodes === 'number',
  error: ({ message }) => typeof message === 'string',
});

export const connectTail: TailConnect = (events) => {
  const { protocol, host } = window.location;
  const socket = new WebSocket(`${protocol === 'https:' ? 'wss' : 'ws'}://${host}${based('/ws/tail')}`);
  let wanted = true;
  socket.onopen = () => wanted && events.opened();
  socket.onmessage = (event: MessageEvent<string>) => {
    const message = wanted ? readMessage(event.data) : null;
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

/**
 * A topic's messages as they arrive, the newest first. The platform may send only some; `skipped` counts the others.
 */
export class TailStore {
  state = $state.raw<TailState>({ status: 'connecting' });
  messages = $state.raw<readonly (TailedMessage & { number: number })[]>([]);
  skipped = $state(0);
  nodes = $state(0);

  #connect: TailConnect;
  #topic: string;
  #socket: TailSocket | null = null;
  #filter = '';
  #received = 0;

  constructor(connect: TailConnect, topic: string) {
    this.#connect = connect;
    this.#topic = topic;
  }

  /** `takeBacklog`: continue although the tail would be the topic's first channel. */
  start(takeBacklog = false): void {
    this.stop();
    this.state = { status: 'connecting' };
    this.#socket = this.#connect({
      opened: () => this.#socket?.send({ type: 'start', topic: this.#topic, filter: this.#filter, take_backlog: takeBacklog }),
      message: (message) => this.#take(message),
      closed: () => {
        this.#socket = null;
        if (this.state.status !== 'failed') this.state = { status: 'failed', message: 'The connection to the platform is lost.' };
      },
    });
  }

  stop(): void {
    this.#socket?.close();
    this.#socket = null;
  }

  pause(): void {
    this.#socket?.send({ type: 'pause' });
    this.state = { status: 'paused' };
  }

  resume(): void {
    this.#socket?.send({ type: 'resume' });
    this.state = { status: 'running' };
  }

  filter(text: string): void {
    if (text === this.#filter) return;
    this.#filter = text;
    this.#socket?.send({ type: 'filter', text });
  }

  clear(): void {
    this.messages = [];
    this.skipped = 0;
  }

  #take(message: TailMessage): void {
    if (message.type === 'started') this.state = { status: 'running' };
    else if (message.type === 'ask') this.state = { status: 'asking', nodes: message.nodes };
    else if (message.type === 'error') {
      this.state = { status: 'failed', message: message.message };
      this.stop();
    } else {
      this.skipped += message.skipped;
      this.nodes = message.nodes;
      if (this.state.status === 'paused') this.skipped += message.messages.length; // sent before the pause took effect
      if (this.state.status === 'paused' || message.messages.length === 0) return;
      const fresh = message.messages.map((each) => ({ ...each, number: (this.#received += 1) })).reverse();
      this.messages = [...fresh, ...this.messages].slice(0, KEPT);
    }
  }
}
