import * as api from '../api/client';
import { loaded, type Loaded } from '../api/loaded';
import { Newest } from '../api/newest';
import { withRun } from '../reports/runs';
import type { ReportJob, Parameters, Run, Schedule, ScheduleRequest } from '../api/types';

/** Jobs, their schedules and their runs. Errors of changes are thrown to the form. */
export class ReportStore {
  jobs = $state.raw<Loaded<ReportJob[]>>({ status: 'loading' });
  schedules = $state.raw<Loaded<Schedule[]>>({ status: 'loading' });
  runs = $state.raw<Loaded<Run[]>>({ status: 'loading' });

  /** Whether there may be runs older than those loaded. */
  older = $state(false);

  readonly #newestJobs = new Newest();
  readonly #newestSchedules = new Newest();
  readonly #newestRuns = new Newest();
  readonly #newestOlder = new Newest();
  /** Runs that were taken since the first page was requested, whose answer may be older. */
  #taken: Run[] = [];

  constructor(readonly page = 50) {}

  async load(): Promise<void> {
    this.#taken = [];
    await Promise.all([
      this.#newestJobs.take(loaded(api.reportJobs()), (found) => (this.jobs = found)),
      this.#readSchedules(),
      this.#newestRuns.take(loaded(api.runs(null, this.page)), (found) => {
        this.#newestOlder.drop(); // they continue another list
        this.older = found.status === 'ready' && found.value.length === this.page;
        this.runs = found.status === 'ready' ? { status: 'ready', value: this.#taken.reduce(withRun, found.value) } : found;
      }),
    ]);
  }

  async loadSchedules(): Promise<void> {
    await this.#newestSchedules.take(loaded(api.schedules()), (found) => {
      if (found.status === 'ready') this.schedules = found;
    });
  }

  async loadOlder(): Promise<void> {
    if (this.runs.status !== 'ready') return;
    await this.#newestOlder.take(api.runs(this.runs.value.at(-1)?.id ?? null, this.page), (next) => {
      const known = this.runs.status === 'ready' ? this.runs.value : [];
      // A run that was taken meanwhile is newer than the answer.
      this.runs = { status: 'ready', value: known.reduce(withRun, next) };
      this.older = next.length === this.page;
    });
  }

  /** Take a run from the websocket or an answer. A new run of a schedule also changes the schedule. */
  take(run: Run): void {
    if (run.schedule_id !== null && run.state === 'queued') void this.loadSchedules();
    this.#taken = withRun(this.#taken, run);
    if (this.runs.status === 'ready') this.runs = { status: 'ready', value: withRun(this.runs.value, run) };
  }

  async start(job: string, parameters: Parameters): Promise<Run> {
    const run = await api.startRun(job, parameters);
    this.take(run);
    return run;
  }

  /** Have a worker start Spark, which takes longer than a small report. Reports run without it too. */
  prepare(): void {
    void api.prepareReports().catch(() => undefined);
  }

  async cancel(id: number): Promise<void> {
    this.take(await api.cancelRun(id));
  }

  async runSchedule(id: number): Promise<Run> {
    const run = await api.runSchedule(id);
    this.take(run);
    return run;
  }

  async addSchedule(schedule: ScheduleRequest): Promise<void> {
    await api.createSchedule(schedule);
    await this.#readSchedules();
  }

  async changeSchedule(id: number, change: Partial<ScheduleRequest>): Promise<void> {
    await api.changeSchedule(id, change);
    await this.#readSchedules();
  }

  async deleteSchedule(id: number): Promise<void> {
    await api.deleteSchedule(id);
    await this.#readSchedules();
  }

  async #readSchedules(): Promise<void> {
    await this.#newestSchedules.take(loaded(api.schedules()), (found) => (this.schedules = found));
  }
}

/** One run. */
export class RunStore {
  run = $state.raw<Loaded<Run>>({ status: 'loading' });

  readonly #newest = new Newest();

  constructor(readonly id: number) {}

  async load(): Promise<void> {
    await this.#newest.take(loaded(api.run(this.id)), (found) => (this.run = found));
  }

  /** Take a run from the websocket or an answer. It is newer than the answer to an earlier request. */
  take(run: Run): void {
    if (run.id !== this.id) return;
    this.#newest.drop();
    this.run = { status: 'ready', value: run };
  }

  async cancel(): Promise<void> {
    this.take(await api.cancelRun(this.id));
  }
}
