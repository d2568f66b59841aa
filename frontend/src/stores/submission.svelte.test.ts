import { flushSync } from 'svelte';
import { afterEach, expect, test } from 'vitest';
import { Submission } from './submission.svelte';

/** A dialog for a topic, and what its request did. */
class Shown {
  subject = $state<string | null>(null);
  readonly log: string[] = [];
  asked = 0;
  readonly submission: Submission;
  readonly destroy: () => void;

  constructor() {
    const toasts = { show: (text: string, { tone = 'quiet' } = {}) => this.log.push(`toast ${tone}: ${text}`) };
    let made: Submission | undefined;
    this.destroy = $effect.root(() => {
      made = new Submission(toasts, () => this.subject);
    });
    if (made === undefined) throw new Error('it was not made');
    this.submission = made;
    flushSync();
  }

  open(subject: string | null): void {
    this.subject = subject;
    flushSync();
  }

  /** A request that is answered by hand. */
  send() {
    let answer!: (text: string) => void;
    let refuse!: (why: string) => void;
    const sent = new Promise<string>((resolve, reject) => {
      answer = resolve;
      refuse = (why) => reject(new Error(why));
    });
    const ask = (): Promise<string> => {
      this.asked += 1;
      return sent;
    };
    const write = (kind: string) => (text: unknown) => void this.log.push(`${kind}: ${text instanceof Error ? text.message : text}`);
    return { answer, refuse, over: this.submission.send(ask, write('done'), write('failed'), write('late')) };
  }
}

let shown: Shown;
afterEach(() => shown.destroy());

test('the answer of a dialog that is still open closes it', async () => {
  shown = new Shown();
  shown.open('orders');
  const sent = shown.send();
  expect(shown.submission.working).toBe(true);
  sent.answer('yes');
  await sent.over;
  expect(shown.log).toEqual(['done: yes']);
  expect(shown.submission.working).toBe(false);
});

test('a failure is shown in the dialog, which then takes another request', async () => {
  shown = new Shown();
  shown.open('orders');
  const sent = shown.send();
  sent.refuse('no such topic');
  await sent.over;
  const again = shown.send();
  again.answer('yes');
  await again.over;
  expect(shown.log).toEqual(['failed: no such topic', 'done: yes']);
});

test('an answer after the dialog was opened for something else changes nothing in it', async () => {
  shown = new Shown();
  shown.open('orders');
  const sent = shown.send();
  shown.open('mails');
  expect(shown.submission.working).toBe(false);
  sent.answer('yes');
  await sent.over;
  expect(shown.log).toEqual(['late: yes']);
});

test('nor does one after the dialog was closed and opened for the same', async () => {
  shown = new Shown();
  shown.open('orders');
  const first = shown.send();
  shown.open(null);
  shown.open('orders');
  const second = shown.send();
  first.answer('first');
  await first.over;
  expect(shown.submission.working).toBe(true);
  second.answer('second');
  await second.over;
  expect(shown.log).toEqual(['late: first', 'done: second']);
});

test('a failure after the dialog was closed is shown at the edge of the page', async () => {
  shown = new Shown();
  shown.open('orders');
  const sent = shown.send();
  shown.destroy();
  sent.refuse('no node answers');
  await sent.over;
  expect(shown.log).toEqual(['toast bad: no node answers']);
});

test('a second click during a request sends nothing', async () => {
  shown = new Shown();
  shown.open('orders');
  const sent = shown.send();
  shown.send();
  sent.answer('yes');
  await sent.over;
  expect([shown.asked, shown.log]).toEqual([1, ['done: yes']]);
});
