import * as api from '../api/client';
import { Newest } from '../api/newest';
import { withRun } from '../reports/runs';
import type { ReportJob, Parameters, Run, Schedule, ScheduleRequest } from '../api/types';
import { Reading } from './reading.svelte';

/** Jobs, their schedules and their runs. Errors of changes are thrown to the form. */
export class ReportStore {
  readonly jobs = new Reading<ReportJob[]>();
  readonly schedules = new Reading<Schedule[]>();
  readonly runs = new Reading<Run[]>();

  /** Whether there may be runs older than those loaded. */
  older = $state(false);

  readonly #newestOlder = new Newest();
  /** Runs that were taken since the first page was requested, whose answer may be older. */
  #taken: Run[] = [];

  constructor(readonly page = 50) {}

  /** Why something that is shown could not be read again; empty if all could. */
  get fault(): string {
    return this.jobs.fault || this.schedules.fault || this.runs.fault;
  }

  async load(): Promise<void> {
    this.#taken = [];
    await Promise.all([
      this.jobs.read(api.reportJobs()),
      this.loadSchedules(),
      this.runs.read(api.runs(null, this.page), (runs) => {
        this.#newestOlder.drop(); // they continue another list
        this.older = runs.length === this.page;
        return this.#taken.reduce(withRun, runs);
      }),
    ]);
  }

  async loadSchedules(): Promise<void> {
    await this.schedules.read(api.schedules());
  }

  async loadOlder(): Promise<void> {
    const last = this.runs.value?.at(-1);
    await this.#newestOlder.take(api.runs(last?.id ?? null, this.page), (next) => {
      // A run that was taken meanwhile is newer than the answer.
      this.runs.change((known) => known.reduce(withRun, next));
      this.older = next.length === this.page;
    });
  }

  /** Take a run from the websocket or an answer. A new run of a schedule also changes the schedule. */
  take(run: Run): void {
    if (run.schedule_id !== null && run.state === 'queued') void this.loadSchedules();
    this.#taken = withRun(this.#taken, run);
    this.runs.change((known) => withRun(known, run));
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
    await this.loadSchedules();
  }

  async changeSchedule(id: number, change: Partial<ScheduleRequest>): Promise<void> {
    await api.changeSchedule(id, change);
    await this.loadSchedules();
  }

  async deleteSchedule(id: number): Promise<void> {
    await api.deleteSchedule(id);
    await this.loadSchedules();
  }
}

/** One run. */
export class RunStore {
  readonly run = new Reading<Run>();

  constructor(readonly id: number) {}

  async load(): Promise<void> {
    await this.run.read(api.run(this.id));
  }

  /** Take a run from the websocket or an answer. It is newer than the answer to an earlier request. */
  take(run: Run): void {
    if (run.id === this.id) this.run.take(run);
  }

  async cancel(): Promise<void> {
    this.take(await api.cancelRun(this.id));
  }
}
