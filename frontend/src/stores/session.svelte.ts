import { based } from '../api/base';
import { ApiError, me, messageOf, signIn, signOut, whenUnauthorized } from '../api/client';
import type { Me } from '../api/types';
import { globMatches } from '../patterns/glob';

export type SessionState =
  | { status: 'unknown' }
  | { status: 'unreachable'; message: string }
  | { status: 'anonymous'; expired: boolean }
  | { status: 'signed-in'; me: Me };

/** The signed-in user and their permissions. */
export class SessionStore {
  state = $state.raw<SessionState>({ status: 'unknown' });
  /** Increases when the user signs in or out: answers about the session before are ignored. */
  #turn = 0;

  constructor() {
    whenUnauthorized(() => {
      this.#turn += 1;
      // Further requests of the same session may be refused after it.
      if (this.state.status !== 'anonymous') this.state = { status: 'anonymous', expired: this.state.status === 'signed-in' };
    });
  }

  get me(): Me | null {
    return this.state.status === 'signed-in' ? this.state.me : null;
  }

  get mayAct(): boolean {
    return this.me !== null && this.me.role !== 'viewer' && this.me.role !== 'none';
  }

  /** The cluster's title, if the user may view others too; else empty. */
  get clusterTitle(): string {
    const clusters = this.me?.clusters ?? [];
    return clusters.length > 1 ? (clusters.find((each) => each.name === this.me?.cluster)?.title ?? '') : '';
  }

  get isAdmin(): boolean {
    return this.me?.role === 'admin';
  }

  /** Whether the user may manage accounts, which belong to no cluster. */
  get administers(): boolean {
    return this.me?.administers ?? false;
  }

  /** Whether the user may act on this topic: an operator may be limited to some. The platform checks it again. */
  mayActOn(topic: string): boolean {
    if (!this.me || !this.mayAct) return false;
    const { role, topic_patterns: patterns } = this.me;
    return role === 'admin' || patterns.length === 0 || patterns.some((pattern) => globMatches(pattern, topic));
  }

  /** Whether the user may act on all topics that match a glob, by the platform's rules. The platform checks it again. */
  mayActOnAll(pattern: string): boolean {
    if (!this.me || !this.mayAct) return false;
    const { role, topic_patterns: patterns } = this.me;
    const wide = patterns.filter((own) => !/[?[]/.test(own));
    return role === 'admin' || patterns.length === 0 || patterns.includes(pattern) || wide.some((own) => globMatches(own, pattern));
  }

  /** Whether the user may act on nodes, which no limit to topics includes. */
  get mayActOnNodes(): boolean {
    return this.isAdmin || (this.mayAct && this.me?.topic_patterns.length === 0);
  }

  /** Whether the user may read messages; `--message-role` sets the lowest role. */
  get mayRead(): boolean {
    return this.me?.reads_messages ?? false;
  }

  /** Whether the user may read messages of this topic. The platform checks it again. */
  mayReadOf(topic: string): boolean {
    return this.mayRead && (this.me?.reads_all_topics === true || this.mayActOn(topic));
  }

  /** The topics to which an operator is limited, as a text; empty without a limit. */
  get limit(): string {
    const { role = '', topic_patterns: patterns = [] } = this.me ?? {};
    return role === 'operator' && patterns.length > 0 ? `You may act on ${patterns.join(', ')} only` : '';
  }

  /** Why an operator who is limited to topics may not act on this one; empty if they may. */
  refusalOf(topic: string): string {
    return this.mayActOn(topic) ? '' : this.limit;
  }

  /** Request the session. Without an answer, the page stays as it is, and the feed shows that it is stale. */
  async check(): Promise<void> {
    const turn = ++this.#turn;
    try {
      const found = await me();
      if (turn === this.#turn) this.state = { status: 'signed-in', me: found };
    } catch (error) {
      if (turn !== this.#turn) return;
      if (error instanceof ApiError && error.status === 401) return; // whenUnauthorized handles it
      if (error instanceof ApiError && error.status === 403) return window.location.reload(); // the platform shows the reason
      if (this.state.status !== 'signed-in') this.state = { status: 'unreachable', message: messageOf(error) };
    }
  }

  async signIn(username: string, password: string): Promise<void> {
    const me = await signIn(username, password);
    this.#turn += 1;
    // The platform redirects to a cluster that the account may view, or shows that there is none.
    if (me.role === 'none') window.location.assign(based('/'));
    else this.state = { status: 'signed-in', me };
  }

  async signOut(): Promise<void> {
    await signOut();
    this.#turn += 1;
    this.state = { status: 'anonymous', expired: false };
  }
}
