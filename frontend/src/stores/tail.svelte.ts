import type { TailConnect, TailSocket } from '../api/tail';
import type { TailMessage } from '../api/types';

export type TailedMessage = Extract<TailMessage, { type: 'messages' }>['messages'][number];

export type TailState =
  | { status: 'connecting' }
  | { status: 'asking'; nodes: readonly { node: string; depth: number }[] }
  | { status: 'running' | 'paused' }
  | { status: 'failed'; message: string };

const KEPT = 500;
/** By the close code of the platform. */
const ENDED: Readonly<Record<number, string>> = {
  4401: 'You are signed out.',
  4403: 'Your account may no longer read the messages of this topic.',
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
      closed: (code) => {
        this.#socket = null;
        if (this.state.status !== 'failed') this.state = { status: 'failed', message: ENDED[code] ?? 'The connection to the platform is lost.' };
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
    if (message.type === 'account') return; // the page itself is notified, too
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
