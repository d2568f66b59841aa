import * as api from '../api/client';
import { loaded, type Loaded } from './loaded';
import type { Job, Parameters, Result, Run, Schedule, ScheduleRequest } from '../api/types';

/** `runs` with `run` put in its place, newest first. */
export function withRun(runs: readonly Run[], run: Run): Run[] {
  const known = runs.some((other) => other.id === run.id);
  const next = known ? runs.map((other) => (other.id === run.id ? run : other)) : [...runs, run];
  return next.sort((a, b) => b.id - a.id);
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

  async loadOlder(): Promise<void> {
    if (this.runs.status !== 'ready') return;
    const next = await api.runs(this.runs.value.at(-1)?.id ?? null, this.page);
    this.runs = { status: 'ready', value: [...this.runs.value, ...next] };
    this.older = next.length === this.page;
  }

  /** Take a run as the websocket or an answer tells it. */
  take(run: Run): void {
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

const PAGE = 1000;

/** One run and, once it has succeeded, up to `mostRows` rows of its result. */
export class RunStore {
  run = $state.raw<Loaded<Run>>({ status: 'loading' });
  result = $state.raw<Loaded<Result> | null>(null);

  constructor(
    readonly id: number,
    readonly mostRows = 10_000,
  ) {}

  async load(): Promise<void> {
    this.run = await loaded(api.run(this.id));
    await this.#loadResult();
  }

  async take(run: Run): Promise<void> {
    if (run.id !== this.id) return;
    this.run = { status: 'ready', value: run };
    await this.#loadResult();
  }

  async cancel(): Promise<void> {
    await this.take(await api.cancelRun(this.id));
  }

  async #loadResult(): Promise<void> {
    if (this.run.status !== 'ready' || this.run.value.state !== 'succeeded' || this.result !== null) return;
    this.result = { status: 'loading' };
    this.result = await loaded(this.#pages());
  }

  async #pages(): Promise<Result> {
    let result = await api.result(this.id, PAGE, 0);
    while (result.rows.length < Math.min(result.total, this.mostRows)) {
      const next = await api.result(this.id, PAGE, result.rows.length);
      if (next.rows.length === 0) break;
      result = { ...result, rows: [...result.rows, ...next.rows] };
    }
    return result;
  }
}
