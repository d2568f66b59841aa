import * as api from '../api/client';
import { loaded, type Loaded } from './loaded';
import type { Job, Parameters, Run, Schedule, ScheduleRequest } from '../api/types';

/** `runs` with `run` put in its place, newest first. */
export function withRun(runs: readonly Run[], run: Run): Run[] {
  const known = runs.some((other) => other.id === run.id);
  const next = known ? runs.map((other) => (other.id === run.id ? run : other)) : [...runs, run];
  return next.sort((a, b) => b.id - a.id);
}

/** How long a run will still take, as precisely as that can be known. */
export function leftText(seconds: number): string {
  if (seconds < 10) return 'a few seconds left';
  if (seconds < 55) return `about ${Math.ceil(seconds / 10) * 10} s left`;
  const minutes = Math.max(1, Math.round(seconds / 60));
  if (minutes < 60) return `about ${minutes} m left`;
  return `about ${Math.floor(minutes / 60)} h ${minutes % 60} m left`;
}

export const isOver = (run: Run): boolean => run.state !== 'queued' && run.state !== 'running';

/** Jobs, their schedules and their runs. Errors of changes are thrown to the form that asked. */
export class ReportStore {
  jobs = $state.raw<Loaded<Job[]>>({ status: 'loading' });
  schedules = $state.raw<Loaded<Schedule[]>>({ status: 'loading' });
  runs = $state.raw<Loaded<Run[]>>({ status: 'loading' });

  /** Whether there may be runs older than those loaded. */
  older = $state(false);

  constructor(readonly page = 50) {}

  async load(): Promise<void> {
    [this.jobs, this.schedules, this.runs] = await Promise.all([
      loaded(api.jobs()),
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

  /** Take a run as the websocket or an answer tells it. A new run of a schedule changes what the schedule tells. */
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
