/** Texts about a job: what it does, how far it is, and how it ended. */
import type { Job } from '../api/types';
import { count, plural, rate } from '../format/format';

export const isOver = ({ state }: Pick<Job, 'state'>): boolean => state !== 'queued' && state !== 'running';

/** The kinds of jobs on dead messages, which take one request for each node of a channel. */
export const isOnDead = ({ kind }: Pick<Job, 'kind'>): boolean => kind.endsWith(' dead messages');

/** `Delete 2,000 topics`; of messages, `Move 2,000 messages to returns` or `Requeue 1,200 dead messages`. */
export function titleOf({ kind, total, noun, parameters }: Pick<Job, 'kind' | 'total' | 'noun' | 'parameters'>): string {
  const { messages, target, exact } = parameters;
  if (typeof messages === 'number') {
    const verb = kind.split(' ')[0] ?? kind;
    const what = `${exact === false ? 'up to ' : ''}${plural(messages, isOnDead({ kind }) ? 'dead message' : 'message')}`;
    return `${verb.charAt(0).toUpperCase()}${verb.slice(1)} ${what}${target ? ` to ${target}` : ''}`;
  }
  return `${kind.charAt(0).toUpperCase()}${kind.slice(1)} ${plural(total, noun)}`;
}

export const settledOf = ({ done_count, partial_count, failed_count }: Job): number => done_count + partial_count + failed_count;

/** Whether something was not done everywhere. */
export const hasFailures = ({ partial_count, failed_count }: Job): boolean => partial_count + failed_count > 0;

function doneOf({ noun, done_count }: Job): string {
  if (noun === 'batch') return `${plural(done_count, 'batch', 'batches')} done`;
  return noun === 'request' ? `${plural(done_count, 'request')} answered` : `${count(done_count)} done`;
}

/** `340 done, 1 on some nodes only, 2 failed, 1,657 remaining, 180/s`. */
export function progressOf(job: Job): string {
  const remaining = job.total - settledOf(job);
  return [
    doneOf(job),
    ...(job.partial_count > 0 ? [`${count(job.partial_count)} on some nodes only`] : []),
    ...(job.failed_count > 0 ? [`${count(job.failed_count)} failed`] : []),
    ...(remaining > 0 ? [`${count(remaining)} ${isOver(job) ? 'not done' : 'remaining'}`] : []),
    ...(job.rate !== null && !isOver(job) ? [`${rate(job.rate)}/s`] : []),
  ].join(', ');
}

/** `Waiting for a dispatcher`, `Cancelling`, `Stopped: …`; empty while it runs, and after it has finished. */
export function noteOf({ state, cancel_requested, message }: Pick<Job, 'state' | 'cancel_requested' | 'message'>): string {
  if (state === 'queued') return 'Waiting for a dispatcher';
  if (state === 'running') return cancel_requested ? 'Cancelling' : '';
  if (state === 'finished') return '';
  return state === 'cancelled' ? message.charAt(0).toUpperCase() + message.slice(1) : `Stopped: ${message}`;
}

/** `topic / channel`. */
export const nameOf = ({ topic, channel }: { topic: string; channel: string | null }): string => (channel === null ? topic : `${topic} / ${channel}`);

/** `topic / channel on node`. */
export const placeOf = (subject: { topic: string; channel: string | null; node: string }): string => `${nameOf(subject)}${subject.node ? ` on ${subject.node}` : ''}`;
