import { loaded, type Loaded } from '../api/loaded';
import type { BulkAction, BulkTarget, Job, JobSubject } from '../api/types';
import type { Dismissed } from '../jobs/dismissed';
import { hasFailures, isOver } from '../jobs/progress';

export type JobApi = {
  start: (kind: BulkAction, subjects: readonly BulkTarget[]) => Promise<Job>;
  list: (limit: number) => Promise<Job[]>;
  cancel: (id: number) => Promise<Job>;
};

/** How many of the newest jobs are requested; only unfinished and the user's own recent ones are shown. */
const NEWEST = 50;
const RECENT_MS = 12 * 3600 * 1000;
/** A success is news for a shorter time than what needs the user. */
const SUCCESS_MS = 60 * 1000;

/** The jobs that the panel shows: all that have not ended, the user's own that failed in the last hours or succeeded in the last minute, and those that ended while the page was open, until they are dismissed. */
export class JobStore {
  #known = $state.raw<ReadonlyMap<number, Job>>(new Map());
  /** Increases when the session ends: its answers that arrive later are ignored. */
  #session = 0;
  /** The newest request of each job's list. */
  #requests = new Map<number, Promise<JobSubject[]>>();
  /** The listed subjects of the jobs whose list was opened. */
  lists = $state.raw<ReadonlyMap<number, Loaded<JobSubject[]>>>(new Map());
  #dismissed = $state.raw<ReadonlySet<number>>(new Set());
  readonly #api: JobApi;
  readonly #keep: Dismissed;

  constructor(api: JobApi, keep: Dismissed) {
    this.#api = api;
    this.#keep = keep;
    this.#dismissed = new Set(keep.read());
  }

  /** Newest first. */
  get shown(): readonly Job[] {
    return [...this.#known.values()].filter(({ id }) => !this.#dismissed.has(id)).sort((a, b) => b.id - a.id);
  }

  /** Request the jobs, at the start and after the connection was lost. `user` is the name of the signed-in user. */
  async load(user: string, now: number): Promise<void> {
    const session = this.#session;
    const found = await this.#api.list(NEWEST);
    if (session !== this.#session) return;
    for (const job of found) {
      const age = now - (job.finished_at ?? job.created_at);
      const isNews = job.requested_by === user && age < (job.state === 'finished' && !hasFailures(job) ? SUCCESS_MS : RECENT_MS);
      if (!isOver(job) || isNews || this.#known.has(job.id)) this.take(job);
    }
  }

  /** Take a job from the websocket or an answer. An answer that is older than what is known is ignored. */
  take(job: Job): void {
    const known = this.#known.get(job.id);
    if (known && isOver(known) && !isOver(job)) return;
    this.#known = new Map(this.#known).set(job.id, job);
  }

  async start(kind: BulkAction, subjects: readonly BulkTarget[]): Promise<void> {
    await this.#takeAnswer(this.#api.start(kind, subjects));
  }

  async cancel(id: number): Promise<void> {
    await this.#takeAnswer(this.#api.cancel(id));
  }

  async #takeAnswer(request: Promise<Job>): Promise<void> {
    const session = this.#session;
    const job = await request;
    if (session === this.#session) this.take(job);
  }

  /** Show the subjects of a job that `request` returns, beside the lists of other jobs. */
  async list(id: number, request: Promise<JobSubject[]>): Promise<void> {
    this.#requests.set(id, request);
    const found = await loaded(request);
    if (this.#requests.get(id) !== request) return;
    this.lists = new Map(this.lists).set(id, found);
  }

  dismiss(id: number): void {
    this.#dismissed = new Set([...this.#dismissed, id].slice(-2 * NEWEST));
    this.#keep.write([...this.#dismissed]);
    // Only the last ids are kept: an older job must not be shown again when its id is forgotten.
    this.#known = new Map([...this.#known].filter(([known]) => known !== id));
  }

  /** Forget all jobs, at the end of the session. */
  forget(): void {
    this.#session += 1;
    this.#known = new Map();
    this.#requests.clear();
    this.lists = new Map();
  }
}
