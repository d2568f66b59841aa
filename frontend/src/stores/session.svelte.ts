import { ApiError, me, messageOf, signIn, signOut, whenUnauthorized } from '../api/client';
import type { Me } from '../api/types';
import { globMatches } from '../patterns/glob';

export type SessionState =
  | { status: 'unknown' }
  | { status: 'unreachable'; message: string }
  | { status: 'anonymous'; expired: boolean }
  | { status: 'signed-in'; me: Me };

/** Who sits at the page, and what they may do. */
export class SessionStore {
  state = $state.raw<SessionState>({ status: 'unknown' });

  constructor() {
    whenUnauthorized(() => {
      this.state = { status: 'anonymous', expired: this.state.status === 'signed-in' };
    });
  }

  get me(): Me | null {
    return this.state.status === 'signed-in' ? this.state.me : null;
  }

  get mayAct(): boolean {
    return this.me !== null && this.me.role !== 'viewer';
  }

  get isAdmin(): boolean {
    return this.me?.role === 'admin';
  }

  /** Whether what we may do reaches this topic: an operator's may be limited to some. The platform checks it again. */
  mayActOn(topic: string): boolean {
    if (!this.me || !this.mayAct) return false;
    const { role, topic_patterns: patterns } = this.me;
    return role === 'admin' || patterns.length === 0 || patterns.some((pattern) => globMatches(pattern, topic));
  }

  /** Whether it reaches nodes: they are none of the topics that an operator is limited to. */
  get mayActOnNodes(): boolean {
    return this.isAdmin || (this.mayAct && this.me?.topic_patterns.length === 0);
  }

  /** Whether this person may read messages; `--message-role` sets the lowest role. */
  get mayRead(): boolean {
    return this.me?.reads_messages ?? false;
  }

  /** Ask the platform who we are. No answer leaves a signed-in page as it is: the feed shows that all is stale. */
  async check(): Promise<void> {
    try {
      this.state = { status: 'signed-in', me: await me() };
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return; // whenUnauthorized has said so
      if (this.state.status !== 'signed-in') this.state = { status: 'unreachable', message: messageOf(error) };
    }
  }

  async signIn(username: string, password: string): Promise<void> {
    this.state = { status: 'signed-in', me: await signIn(username, password) };
  }

  async signOut(): Promise<void> {
    await signOut();
    this.state = { status: 'anonymous', expired: false };
  }
}
