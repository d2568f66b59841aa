import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Alert, AlertCounts, AlertList, AlertsMessage } from '../api/types';
import { AlertStore } from './alerts.svelte';
import { byUrgency, globOf, marksOf, routeOf, subjectOf } from '../alerts/alerts';
import { globMatches } from '../patterns/glob';
import { newsOf } from '../alerts/news';
import { AlertNews, EVERY_MS, GATHER_MS } from './news.svelte';
import { PastStore } from './past.svelte';
import { ToastStore } from './toasts.svelte';

const COUNTS: AlertCounts = { critical: 0, warning: 0, acknowledged: 0, silenced: 0 };

const alert = (id: number, change: Partial<Alert> = {}): Alert => ({
  ...{ id, rule_id: 1, rule: 'Backlog', description: '', severity: 'warning', scope: 'channel', metric: 'depth', unit: 'messages' },
  ...{ comparison: 'above', threshold: 10, hold_s: 60, topic: 'orders', channel: 'billing', node: '', objective: '', state: 'firing', value: 12 },
  ...{ detail: '', began_at: id, fired_at: id, resolved_at: null, resolution: '', resolved_by: '', acknowledged_by: '' },
  ...{ acknowledged_at: null, note: '', silenced_until: null, notices: [] },
  ...change,
});
const over = (id: number): Alert => alert(id, { state: 'resolved', resolved_at: id + 1, resolution: 'cleared' });

/** The platform: its current alerts, and the number of requests. */
function platform(version: number, alerts: Alert[]) {
  const side = {
    asked: 0,
    now: { version, counts: { ...COUNTS, warning: alerts.length }, alerts } as AlertList,
    read: async (): Promise<AlertList> => {
      side.asked += 1;
      return side.now;
    },
  };
  return side;
}
const change = (version: number, alerts: Alert[], counts: Partial<AlertCounts> = {}): AlertsMessage => ({
  type: 'alerts',
  version,
  counts: { ...COUNTS, ...counts },
  alerts,
});
const ids = (store: AlertStore): number[] => [...store.firing.keys()].sort((a, b) => a - b);

describe('the alerts on every page', () => {
  test('the answer to a change does not replace what is newer: all are read again', async () => {
    const side = platform(7, [alert(1)]);
    const store = new AlertStore(side.read);
    await store.refresh();
    side.now = { ...side.now, version: 8, alerts: [] };
    await store.change(async () => {
      store.take(change(8, [over(1)])); // resolved while the acknowledgement is on its way back
      return [alert(1, { acknowledged_by: 'mara', acknowledged_at: 5 })];
    });
    expect(ids(store)).toEqual([]);
    expect(side.asked).toBe(2);
  });

  test('the answer to a change is shown at once if there was no other news', async () => {
    const side = platform(7, [alert(1)]);
    const store = new AlertStore(side.read);
    await store.refresh();
    await store.change(async () => [alert(1, { acknowledged_by: 'mara', acknowledged_at: 5 })]);
    expect(store.firing.get(1)?.acknowledged_by).toBe('mara');
    expect(side.asked).toBe(1);
  });

  test('a call during a request is answered by another one: the first may have been answered before', async () => {
    const side = platform(7, [alert(1)]);
    const store = new AlertStore(side.read);
    const first = store.refresh();
    side.now = { ...side.now, alerts: [alert(1, { silenced_until: 9 })] };
    void store.refresh();
    await first;
    expect(side.asked).toBe(2);
    expect(store.firing.get(1)?.silenced_until).toBe(9);
  });

  test('a change with the next version is applied: an alert begins, one changes, one is over', async () => {
    const side = platform(7, [alert(1), alert(2)]);
    const store = new AlertStore(side.read);
    await store.refresh();
    store.take(change(8, [alert(3), alert(2, { acknowledged_by: 'mara', acknowledged_at: 5 }), over(1)], { warning: 1, acknowledged: 1 }));
    expect(ids(store)).toEqual([2, 3]);
    expect(store.firing.get(2)?.acknowledged_by).toBe('mara');
    expect(store.counts).toMatchObject({ warning: 1, acknowledged: 1 });
    expect(side.asked).toBe(1);
  });

  test('a change with the current version updates only the counts', async () => {
    const side = platform(7, [alert(1)]);
    const store = new AlertStore(side.read);
    await store.refresh();
    store.take(change(7, [], { silenced: 1 }));
    expect(store.counts).toMatchObject({ warning: 0, silenced: 1 });
    expect([ids(store), side.asked]).toEqual([[1], 1]);
  });

  test.each([
    ['a gap', 9, [alert(4)]],
    ['a lower version, from a Redis that was emptied,', 1, [alert(4)]],
    ['a change that names no alert', 8, []],
  ])('after %s all alerts are read again', async (_, version, named) => {
    const side = platform(7, [alert(1)]);
    const store = new AlertStore(side.read);
    await store.refresh();
    side.now = { version, counts: COUNTS, alerts: [alert(5)] };
    store.take(change(version, named));
    await vi.waitFor(() => expect(ids(store)).toEqual([5]));
    expect([side.asked, store.version]).toEqual([2, version]);
  });

  test('a change that comes while all alerts are read is not lost', async () => {
    const side = platform(7, [alert(1)]);
    const store = new AlertStore(side.read);
    const reading = store.refresh();
    side.now = { version: 8, counts: COUNTS, alerts: [alert(1), alert(2)] };
    store.take(change(8, [alert(2)]));
    await reading;
    expect([ids(store), store.version]).toEqual([[1, 2], 8]);
  });

  test('an error of the first request is shown, and the next message repeats the request', async () => {
    const side = platform(3, [alert(1)]);
    let down = true;
    const store = new AlertStore(async () => (down ? Promise.reject(new Error('no answer')) : side.read()));
    await store.refresh();
    expect([store.status, store.error]).toEqual(['failed', 'no answer']);
    down = false;
    store.take(change(3, []));
    await vi.waitFor(() => expect(store.status).toBe('ready'));
    expect(ids(store)).toEqual([1]);
  });

  test('a later answer that fails changes nothing on the page, and the next message asks again', async () => {
    const side = platform(3, [alert(1)]);
    let down = false;
    const store = new AlertStore(async () => (down ? Promise.reject(new Error('no answer')) : side.read()));
    await store.refresh();
    down = true;
    await store.refresh();
    expect([store.status, ids(store)]).toEqual(['ready', [1]]);
    down = false;
    side.now = { version: 3, counts: COUNTS, alerts: [] };
    store.take(change(3, []));
    await vi.waitFor(() => expect(ids(store)).toEqual([]));
  });

  test('an answer that comes after signing out is not shown to whoever signs in', async () => {
    const side = platform(3, [alert(1)]);
    const store = new AlertStore(side.read);
    const reading = store.refresh();
    store.forget();
    await reading;
    expect([store.status, ids(store), store.counts]).toEqual(['loading', [], null]);
  });

  test('a new alert is announced once; those of the first answer, silenced ones and changes are not', async () => {
    const began: number[] = [];
    const side = platform(1, [alert(1)]);
    const store = new AlertStore(side.read, { began: (alerts) => began.push(...alerts.map(({ id }) => id)), settled: () => {} });
    await store.refresh();
    store.take(change(2, [alert(2), alert(3, { silenced_until: 9 }), alert(1, { note: 'seen' })]));
    store.take(change(3, [alert(2, { note: 'seen' })]));
    expect(began).toEqual([2]);
  });
});

describe('news of alerts', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const firing = (...alerts: Alert[]) => new Map(alerts.map((each) => [each.id, each]));
  const texts = (toasts: ToastStore): string[] => toasts.list.map(({ text }) => text);

  test('alerts that fire together are one toast', () => {
    const toasts = new ToastStore();
    const news = new AlertNews(toasts);
    news.began([alert(1), alert(2, { channel: 'audit' })]);
    news.began([alert(3, { rule: 'No consumers', severity: 'critical' })]);
    expect(texts(toasts)).toEqual([]);
    vi.advanceTimersByTime(GATHER_MS);
    expect(texts(toasts)).toEqual(['3 alerts fire: No consumers, Backlog (2)']);
    expect(toasts.list[0]).toMatchObject({ tone: 'bad', href: '/alerts' });
  });

  test('the next toast waits, and replaces the shown one', () => {
    const toasts = new ToastStore();
    const news = new AlertNews(toasts);
    news.began([alert(1, { severity: 'critical' })]);
    vi.advanceTimersByTime(GATHER_MS);
    expect(texts(toasts)).toEqual(['Critical: Backlog: orders / billing']);
    news.began([alert(2)]);
    vi.advanceTimersByTime(EVERY_MS - 1);
    expect(toasts.list).toHaveLength(1);
    vi.advanceTimersByTime(1);
    expect(texts(toasts)).toEqual(['2 alerts fire: Backlog (2)']);
  });

  test('resolved and attended alerts are not announced, and their toast is dismissed', () => {
    const toasts = new ToastStore();
    const news = new AlertNews(toasts);
    news.began([alert(1, { severity: 'critical' }), alert(2)]);
    news.settled(firing(alert(1, { severity: 'critical' })));
    vi.advanceTimersByTime(GATHER_MS);
    expect(texts(toasts)).toEqual(['Critical: Backlog: orders / billing']);
    news.settled(firing(alert(1, { acknowledged_at: 5, acknowledged_by: 'mara' })));
    expect(toasts.list).toEqual([]);
  });

  test('after signing out, nothing is announced any more, and the shown toast is dismissed', async () => {
    const toasts = new ToastStore();
    const firing = platform(1, []);
    const store = new AlertStore(firing.read, new AlertNews(toasts));
    await store.refresh();
    store.take(change(2, [alert(1, { severity: 'critical' })]));
    vi.advanceTimersByTime(GATHER_MS);
    expect(toasts.list).toHaveLength(1);
    store.take(change(3, [alert(2)]));
    store.forget();
    expect(toasts.list).toEqual([]);
    vi.advanceTimersByTime(EVERY_MS);
    expect(toasts.list).toEqual([]);
  });

  test('an alert that is over before it is announced is not announced', () => {
    const toasts = new ToastStore();
    const news = new AlertNews(toasts);
    news.began([alert(1)]);
    news.settled(firing());
    vi.advanceTimersByTime(GATHER_MS);
    expect(toasts.list).toEqual([]);
  });

  test('a node is named by its id', () => {
    expect(newsOf([alert(1, { rule: 'Node missing', scope: 'node', topic: '', channel: '', node: 'a:4151', severity: 'critical' })])).toBe(
      'Critical: Node missing: a:4151',
    );
  });
});

describe('marks of alerts', () => {
  const node = alert(3, { scope: 'node', topic: '', channel: '', node: 'a:4151', severity: 'critical' });

  test('a topic is marked for its channels too, a channel and a node for themselves', () => {
    const marks = marksOf([alert(1), alert(2, { channel: '', scope: 'topic', severity: 'critical' }), node]);
    expect(marks.topics.get('orders')).toMatchObject({ severity: 'critical', attended: false });
    expect(marks.topics.get('orders')?.alerts.map(({ id }) => id)).toEqual([2, 1]);
    expect(marks.channels.get('orders/billing')?.alerts).toHaveLength(1);
    expect([...marks.nodes.keys()]).toEqual(['a:4151']);
  });

  test('a mark is attended once all of its alerts are', () => {
    const seen = alert(1, { acknowledged_at: 4, severity: 'critical' });
    expect(marksOf([seen]).topics.get('orders')?.attended).toBe(true);
    expect(marksOf([seen, alert(2)]).topics.get('orders')).toMatchObject({ attended: false, severity: 'warning' });
  });

  test('unattended alerts come first, then critical ones, then new ones', () => {
    const sorted = [alert(1, { silenced_until: 9, severity: 'critical' }), alert(2), alert(4), alert(3, { severity: 'critical' })].sort(byUrgency);
    expect(sorted.map(({ id }) => id)).toEqual([3, 4, 2, 1]);
  });

  test('each leads to its page', () => {
    expect([subjectOf(node), routeOf(node)]).toEqual(['a:4151', { page: 'node', node: 'a:4151' }]);
    expect(routeOf(alert(1))).toEqual({ page: 'channel', topic: 'orders', channel: 'billing' });
    expect(routeOf(alert(1, { channel: '' }))).toEqual({ page: 'topic', topic: 'orders' });
    const archive = alert(1, { scope: 'archive', topic: '', channel: '' });
    expect([subjectOf(archive), routeOf(archive)]).toEqual(['archive', { page: 'reports' }]);
  });

  test.each(['orders', '[::1]:4151', 'a.b-c#ephemeral'])('the glob of %s matches it and nothing else', (name) => {
    expect(globMatches(globOf(name), name)).toBe(true);
    expect(globMatches(globOf(name), `${name}x`)).toBe(false);
  });
});

test('resolved alerts are read in pages; a newly resolved one is inserted in order', async () => {
  let kept = [9, 8, 6, 5, 2, 1];
  const past = new PastStore(2, async (_, before, limit) => kept.filter((id) => before === null || id < before).slice(0, limit).map(over));
  await past.show({ severity: '', subject: '' });
  await past.more();
  expect([past.alerts.map(({ id }) => id), past.complete]).toEqual([[9, 8, 6, 5], false]);
  kept = [9, 8.5, 8, 6, 5, 2, 1];
  await past.renew();
  expect(past.alerts.map(({ id }) => id)).toEqual([9, 8.5, 8, 6, 5]);
  await past.more();
  await past.more();
  expect([past.alerts.map(({ id }) => id), past.complete]).toEqual([[9, 8.5, 8, 6, 5, 2, 1], true]);
});
