/** When a schedule runs, in words, and the fields of its form. */
import cronstrue from 'cronstrue';
import { sentence } from '../api/client';
import type { Parameters, Schedule, ScheduleRequest } from '../api/types';

export type ScheduleForm = {
  name: string;
  job: string;
  kind: 'cron' | 'every';
  cron: string;
  every: string;
  unit: 'minutes' | 'hours' | 'days';
  timeZone: string;
  enabled: boolean;
};

const SECONDS = { minutes: 60, hours: 3600, days: 86_400 } as const;

/** A cron line in words, or why it is none. */
export function cronWords(cron: string): { words: string } | { fault: string } {
  if (cron.trim() === '') return { fault: 'Give five fields: minute, hour, day of month, month, day of week.' };
  if (cron.trim().split(/\s+/).length !== 5) return { fault: 'A cron line has five fields: minute, hour, day of month, month, day of week.' };
  try {
    return { words: cronstrue.toString(cron, { use24HourTimeFormat: true, verbose: true }) };
  } catch (error) {
    return { fault: sentence(String(error).replace(/^Error:\s*/, '')) };
  }
}

export function whenWords(schedule: Pick<Schedule, 'cron' | 'every_seconds'>): string {
  if (schedule.cron !== null) {
    const read = cronWords(schedule.cron);
    return 'words' in read ? read.words : schedule.cron;
  }
  const seconds = schedule.every_seconds ?? 0;
  for (const unit of ['days', 'hours', 'minutes'] as const) {
    if (seconds > 0 && seconds % SECONDS[unit] === 0) {
      const n = seconds / SECONDS[unit];
      return n === 1 ? `Every ${unit.slice(0, -1)}` : `Every ${n} ${unit}`;
    }
  }
  return `Every ${seconds} seconds`;
}

export function formOf(schedule: Schedule | null, job: string, timeZone: string): ScheduleForm {
  const seconds = schedule?.every_seconds ?? 3600;
  const unit = (['days', 'hours'] as const).find((name) => seconds % SECONDS[name] === 0) ?? 'minutes';
  return {
    name: schedule?.name ?? '',
    job: schedule?.job ?? job,
    kind: schedule && schedule.cron === null ? 'every' : 'cron',
    cron: schedule?.cron ?? '0 6 * * *',
    every: String(seconds / SECONDS[unit]),
    unit,
    timeZone: schedule?.time_zone ?? timeZone,
    enabled: schedule?.enabled ?? true,
  };
}

/** The request the form stands for, or which field is wrong and why. */
export function requestOf(
  form: ScheduleForm,
  parameters: Parameters,
): { request: ScheduleRequest } | { fault: { field: 'name' | 'cron' | 'every'; message: string } } {
  if (form.name.trim() === '') return { fault: { field: 'name', message: 'Give the schedule a name.' } };
  const common = {
    name: form.name.trim(),
    job: form.job,
    parameters,
    time_zone: form.timeZone,
    enabled: form.enabled,
  };
  if (form.kind === 'cron') {
    const read = cronWords(form.cron);
    if ('fault' in read) return { fault: { field: 'cron', message: read.fault } };
    return { request: { ...common, cron: form.cron.trim(), every_seconds: null } };
  }
  const every = Number(form.every);
  if (!(every > 0) || !Number.isInteger(every * SECONDS[form.unit])) {
    return { fault: { field: 'every', message: `A number of ${form.unit} above zero is needed.` } };
  }
  return { request: { ...common, cron: null, every_seconds: every * SECONDS[form.unit] } };
}
