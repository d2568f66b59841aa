import * as api from '../api/client';
import { loaded, type Loaded } from '../api/loaded';
import { withRun } from '../reports/runs';
import type { ReportJob, Parameters, Run, Schedule, ScheduleRequest } from '../api/types';

/** Jobs, their schedules and their runs. Errors of changes are thrown to the form. */
export class ReportStore {
  jobs = $state.raw<Loaded<ReportJob[]>>({ status: 'loading' });
  schedules = $state.raw<Loaded<Schedule[]>>({ status: 'loading' });
  runs = $state.raw<Loaded<Run[]>>({ status: 'loading' });

  /** Whether there may be runs older than those loaded. */
  older = $state(false);

  constructor(readonly page = 50) {}

  async load(): Promise<void> {
    [this.jobs, this.schedules, this.runs] = await Promise.all([
      loaded(api.reportJobs()),
      loaded(api.schedules()),
      loaded(api.runs(null, this.page)),
    ]);
    this.older = this.runs.status === 'ready' && this.runs.value.length === this.page;
  }

  async loadSchedules(): Promise<void> {
    const found = await loaded(api.schedules());
    if (found.status === 'ready') this.schedules = found;
  }

  async loadOlder(): Promise<void> {
    if (this.runs.status !== 'ready') return;
    const next = await api.runs(this.runs.value.at(-1)?.id ?? null, this.page);
    this.runs = { status: 'ready', value: [...this.runs.value, ...next] };
    this.older = next.length === this.page;
  }

  /** Take a run from the websocket or an answer. A new run of a schedule also changes the schedule. */
  take(run: Run): void {
    if (run.schedule_id !== null && run.state === 'queued') void this.loadSchedules();
    const runs = this.runs.status === 'ready' ? this.runs.value : [];
    this.runs = { status: 'ready', value: withRun(runs, run) };
  }

  async start(job: string, parameters: Parameters): Promise<Run> {
    const run = await api.startRun(job, parameters);
    this.take(run);
    return run;
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
    this.schedules = await loaded(api.schedules());
  }

  async changeSchedule(id: number, change: Partial<ScheduleRequest>): Promise<void> {
    await api.changeSchedule(id, change);
    this.schedules = await loaded(api.schedules());
  }

  async deleteSchedule(id: number): Promise<void> {
    await api.deleteSchedule(id);
    this.schedules = await loaded(api.schedules());
  }
}

/** One run. */
export class RunStore {
  run = $state.raw<Loaded<Run>>({ status: 'loading' });

  constructor(readonly id: number) {}

  async load(): Promise<void> {
    this.run = await loaded(api.run(this.id));
  }

  take(run: Run): void {
    if (run.id === this.id) this.run = { status: 'ready', value: run };
  }

  async cancel(): Promise<void> {
    this.take(await api.cancelRun(this.id));
  }
}
