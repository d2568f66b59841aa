/** When a schedule runs, in words, and the fields of its form. */
import cronstrue from 'cronstrue';
import { sentence } from '../api/client';
import type { Parameters, Schedule, ScheduleRequest } from '../api/types';
import { plural } from '../format/format';

export type ScheduleForm = {
  name: string;
  job: string;
  kind: 'cron' | 'every';
  cron: string;
  every: string;
  unit: 'minutes' | 'hours' | 'days';
  timeZone: string;
  enabled: boolean;
  overlap: Schedule['overlap'];
  retries: string;
  retryAfterS: string;
  timeLimitMinutes: string;
  keepDays: string;
  notifyOn: Schedule['notify_on'];
  notifyWebhook: string;
  notifyEmail: string;
};

/** Policies for a run that is due before the previous run has finished. */
export const OVERLAPS: Record<Schedule['overlap'], string> = {
  skip: 'skip this run',
  queue: 'queue this run',
  cancel: 'cancel the previous run',
};
export const NOTIFY: Record<Schedule['notify_on'], string> = {
  never: 'never',
  failure: 'on failure',
  completion: 'on failure and success',
};

const SECONDS = { minutes: 60, hours: 3600, days: 86_400 } as const;

const NAMED = ['@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@annually'];

/** A cron line in words, or its error. */
export function cronWords(cron: string): { words: string } | { fault: string } {
  const line = cron.trim().toLowerCase();
  if (line === '') return { fault: 'Give five fields: minute, hour, day of month, month, day of week.' };
  if (line.startsWith('@')) {
    if (!NAMED.includes(line)) return { fault: `There is no ${line}; there are ${NAMED.join(', ')}.` };
  } else if (line.split(/\s+/).length !== 5) {
    return { fault: 'A cron line has five fields: minute, hour, day of month, month, day of week.' };
  }
  try {
    const words = cronstrue.toString(line, { use24HourTimeFormat: true, verbose: true });
    // “At 5 minutes past the hour” needs no more words; “At 05:00” does.
    return { words: words.replace(/^(.* past the hour), every hour, every day$/, '$1') };
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
  return `Every ${plural(seconds, 'second')}`;
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
    overlap: schedule?.overlap ?? 'skip',
    retries: String(schedule?.retries ?? 0),
    retryAfterS: String(schedule?.retry_after_s ?? 60),
    timeLimitMinutes: String((schedule?.time_limit_s ?? 7200) / 60),
    keepDays: String(schedule?.keep_days ?? 90),
    notifyOn: schedule?.notify_on ?? 'never',
    notifyWebhook: schedule?.notify_webhook ?? '',
    notifyEmail: schedule?.notify_email ?? '',
  };
}

/** The fields of the request, except for a job's parameters. */
export const FIELDS = [
  ...['name', 'job', 'cron', 'every_seconds', 'time_zone', 'enabled', 'overlap', 'retries', 'retry_after_s', 'time_limit_s'],
  ...['keep_days', 'notify_on', 'notify_webhook', 'notify_email'],
] as const;

export type FormFault = {
  field: 'name' | 'cron' | 'every_seconds' | 'retries' | 'retry_after_s' | 'time_limit_s' | 'keep_days' | 'notify_on';
  message: string;
};

/** The form's request, or the first error. */
export function requestOf(
  form: ScheduleForm,
  parameters: Parameters,
): { request: ScheduleRequest } | { fault: FormFault } {
  if (form.name.trim() === '') return { fault: { field: 'name', message: 'Give the schedule a name.' } };
  const common = {
    name: form.name.trim(),
    job: form.job,
    parameters,
    time_zone: form.timeZone,
    enabled: form.enabled,
    overlap: form.overlap,
    retries: Number(form.retries),
    retry_after_s: Number(form.retryAfterS),
    time_limit_s: Math.round(Number(form.timeLimitMinutes) * 60),
    keep_days: Number(form.keepDays),
    notify_on: form.notifyOn,
    notify_webhook: form.notifyWebhook.trim(),
    notify_email: form.notifyEmail.trim(),
  };
  for (const [field, value, least, most] of [
    ['retries', common.retries, 0, 10],
    ['retry_after_s', common.retry_after_s, 1, 86_400],
    ['time_limit_s', common.time_limit_s / 60, 1 / 6, 10_080],
    ['keep_days', common.keep_days, 1, 3650],
  ] as const) {
    const whole = field === 'time_limit_s' || Number.isInteger(value);
    if (!(value >= least && value <= most) || !whole) {
      return { fault: { field, message: `A ${field === 'time_limit_s' ? '' : 'whole '}number from ${Math.round(least)} to ${most} is needed.` } };
    }
  }
  if (form.notifyOn !== 'never' && common.notify_webhook === '' && common.notify_email === '') {
    return { fault: { field: 'notify_on', message: 'Give a webhook or an e-mail address to notify.' } };
  }
  if (form.kind === 'cron') {
    const read = cronWords(form.cron);
    if ('fault' in read) return { fault: { field: 'cron', message: read.fault } };
    return { request: { ...common, cron: form.cron.trim(), every_seconds: null } };
  }
  const every = Number(form.every);
  if (!(every > 0) || !Number.isInteger(every * SECONDS[form.unit])) {
    return { fault: { field: 'every_seconds', message: `A number of ${form.unit} above zero is needed.` } };
  }
  return { request: { ...common, cron: null, every_seconds: every * SECONDS[form.unit] } };
}
