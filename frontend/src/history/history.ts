/** The last minutes of every row's figures, from the snapshots that this browser received. */
import type { Metric } from '../api/figures';
import type { ChannelRow, NodeRow, TopicRow, ViewOf } from '../api/types';
import { backlogOf, totalsOf, within, type ClusterSnapshot, type Totals } from '../snapshot/snapshot';
import { madeOnce } from '../snapshot/texts';
import { Grid, type Placing, type RingView } from './grid';

/** A rate of each topic, summed over its channels: null if none is known, 0 without channels. */
class TopicRates {
  #sums = new Map<string, number | null>();

  add(topic: string, value: number | null): void {
    const sum = this.#sums.get(topic) ?? null;
    this.#sums.set(topic, value === null ? sum : (sum ?? 0) + value);
  }

  of(topic: string): number | null {
    return this.#sums.get(topic) ?? (this.#sums.has(topic) ? null : 0);
  }
}

/** A ring of the last `capacity` numbers; NaN is unknown. Grows as it fills. */
export class Ring {
  #values: Float64Array;
  #start = 0;
  length = 0;

  constructor(readonly capacity: number) {
    this.#values = new Float64Array(Math.min(capacity, 64));
  }

  push(value: number): void {
    if (this.length === this.#values.length && this.length < this.capacity) {
      const grown = new Float64Array(Math.min(this.capacity, this.length * 2));
      grown.set(this.#values);
      this.#values = grown;
    }
    if (this.length < this.#values.length) {
      this.#values[this.length++] = value;
    } else {
      this.#values[this.#start] = value;
      this.#start = (this.#start + 1) % this.#values.length;
    }
  }

  /** The value that many polls ago, 0 being the latest; NaN if there is none. */
  ago(polls: number): number {
    if (polls < 0 || polls >= this.length) return NaN;
    return this.#values[(this.#start + this.length - 1 - polls) % this.#values.length] as number;
  }

  /** The last `count` values (all by default), oldest first. */
  last(count = this.length): number[] {
    const taken = Math.min(count, this.length);
    return Array.from({ length: taken }, (_, i) => this.ago(taken - 1 - i));
  }
}

/** The recent records of one scope's series; record n of series s is of `times[n] + phases[s]`, in Unix seconds. */
export type RecentSeries = {
  scope: 'cluster' | 'node' | 'topic' | 'channel';
  names: readonly string[];
  times: readonly number[];
  phases: readonly number[];
  /** For each name, a value for each time, or one that all share. */
  metrics: Readonly<Record<string, readonly (readonly (number | null)[])[]>>;
};

export type { Metric };

export const CLUSTER = 'cluster';
const seriesOfTopic = madeOnce((topic) => `topic ${topic}`);
export const topicSeries = (name: string): string => seriesOfTopic(name, '');
export const channelSeries = madeOnce((topic, name) => `channel ${topic}/${name}`);
export const nodeSeries = (id: string): string => `node ${id}`;

/** Number of polls kept of each row, by the number of rows of its table: an hour, ten minutes, or two. */
const KEPT: readonly [rows: number, polls: number][] = [
  [300, 3600],
  [1500, 600],
  [Infinity, 120],
];

/** Smallest number of values from which growth is computed. */
const FEWEST_POLLS = 10;

/** The number of the first poll; those that a fill puts before it have smaller ones. */
const FIRST_POLL = 1 << 20;

/** A topic with what its channels add up to. */
type TopicSums = { topic: TopicRow; backlog: number; finished: number | null; emptied: number | null; rewound: number | null };

/** Largest number of places that are remembered; when it is reached, all are forgotten. */
const MAX_PLACES = 200_000;

type Place = readonly [table: Pick<Grid<never>, 'ring' | 'rise' | 'polls' | 'any'>, key: string];

export class History {
  #times: Ring;
  #places = new Map<string, Place>();
  /** The number of the latest poll. */
  #poll = FIRST_POLL - 1;
  #kept = (rows: number): number => Math.min(this.keep, KEPT.find(([most]) => rows <= most)?.[1] ?? this.keep);
  #cluster = new Grid<Totals>(
    {
      depth: (totals) => totals.depth,
      publish_rate: (totals) => totals.publishRate,
      finish_rate: (totals) => totals.finishRate,
      emptied_rate: (totals) => totals.emptiedRate,
      rewound_rate: (totals) => totals.rewoundRate,
      in_flight: (totals) => totals.inFlight,
      clients: (totals) => totals.clients,
    },
    this.#kept,
  );
  #nodes = new Grid<NodeRow>(
    {
      depth: (node) => (node.state === 'down' ? null : node.depth),
      publish_rate: (node) => node.publish_rate,
      finish_rate: (node) => node.finish_rate,
    },
    this.#kept,
  );
  #topics = new Grid<TopicSums>(
    {
      depth: ({ backlog }) => backlog,
      publish_rate: ({ topic }) => topic.publish_rate,
      finish_rate: ({ finished }) => finished,
      emptied_rate: ({ emptied }) => emptied,
      rewound_rate: ({ rewound }) => rewound,
      in_flight: ({ topic }) => topic.in_flight_count,
      clients: ({ topic }) => topic.client_count,
      oldest_age_ms: ({ topic }) => topic.oldest_age_ms,
    },
    this.#kept,
  );
  #channels = new Grid<ChannelRow>(
    {
      depth: (channel) => channel.depth,
      publish_rate: (channel) => channel.publish_rate,
      finish_rate: (channel) => channel.finish_rate,
      in_flight: (channel) => channel.in_flight_count,
      timeout_rate: (channel) => channel.timeout_rate,
      requeue_rate: (channel) => channel.requeue_rate,
      emptied_rate: (channel) => channel.emptied_rate,
      rewound_rate: (channel) => channel.rewound_rate,
      clients: (channel) => channel.client_count,
      oldest_age_ms: (channel) => channel.oldest_age_ms,
      deferred: (channel) => channel.deferred_count,
      dead: (channel) => channel.dead_count,
      death_rate: (channel) => channel.death_rate,
      drop_rate: (channel) => channel.drop_rate,
      p50_ms: (channel) => channel.p50_ms,
      p99_ms: (channel) => channel.p99_ms,
    },
    this.#kept,
  );
  #grids = { cluster: this.#cluster, node: this.#nodes, topic: this.#topics, channel: this.#channels };

  constructor(readonly keep = 3600) {
    this.#times = new Ring(keep);
  }

  /**
   * Append the snapshot's numbers; rows that are gone are forgotten. Rows outside of `view` get NaN, because their
   * numbers in the snapshot are old.
   */
  record(snapshot: ClusterSnapshot, view: ViewOf = {}): void {
    this.#times.push(snapshot.takenAt / 1000);
    const poll = ++this.#poll;
    const isWhole = view.topic === undefined && view.node === undefined;
    this.#cluster.record(poll, new Map([['', totalsOf(snapshot)]]), () => isWhole);
    this.#nodes.record(poll, snapshot.nodes);
    this.#channels.record(poll, snapshot.channels, isWhole ? undefined : (row) => within(view, row.topic, row.nodes));
    // A topic's backlog and rates are those of all its channels, and a node may not have all of them.
    this.#topics.record(
      poll,
      sumsOf(snapshot),
      isWhole ? undefined : ({ topic }) => view.node === undefined && within(view, topic.name, topic.nodes),
    );
  }

  /**
   * Add records of the time before this browser's first snapshot, and of the times at which it had another view.
   * Values between two records are interpolated; those after the last are equal to it. Known values stay.
   */
  fill(recent: readonly RecentSeries[], stepS: number): void {
    if (this.#times.length === 0) return;
    this.#extend(Math.min(...recent.map(({ times }) => times[0] ?? Infinity)));
    for (const { scope, names, times, phases, metrics } of recent) {
      const polls = Math.min(this.#times.length, this.#kept(names.length));
      const placings = new Map<number, Placing>();
      const placing = (place: number): Placing => {
        const phase = phases[place] ?? 0;
        const made = placings.get(phase) ?? this.#placing(times, phase, polls, stepS);
        placings.set(phase, made);
        return made;
      };
      for (const [metric, columns] of Object.entries(metrics) as [Metric, (number | null)[][]][]) {
        this.#grids[scope].fill(metric, names, (place) => columns[place] ?? [], placing, polls);
      }
    }
  }

  /** Begin the times at `from`, with one each second. */
  #extend(from: number): void {
    const times = this.#times.last();
    const first = times[0] as number;
    if (!(from < first)) return;
    this.#times = new Ring(this.keep);
    for (let time = from; time < first - 0.5; time++) this.#times.push(time);
    for (const time of times) this.#times.push(time);
  }

  /** The last `polls` polls between the records of `times`, which are `phase` seconds later. */
  #placing(times: readonly number[], phase: number, polls: number, stepS: number): Placing {
    const made = { next: new Int32Array(polls), share: new Float64Array(polls) };
    let next = 0; // the first record that is later
    for (let n = 0; n < polls; n++) {
      const time = this.#times.ago(polls - 1 - n) - phase;
      while (next < times.length && (times[next] as number) <= time) next++;
      const [before, after] = [times[next - 1], times[next]];
      if (before === undefined || time - before > 2 * stepS) continue;
      made.next[n] = next;
      made.share[n] = after === undefined ? NaN : (time - before) / (after - before);
    }
    return made;
  }

  #ring(series: string, metric: Metric): RingView | null {
    const [grid, key] = this.#place(series);
    return grid.ring(key, metric);
  }

  /** The table of a series and its row's key. */
  #place(series: string): Place {
    const known = this.#places.get(series);
    if (known !== undefined) return known;
    if (this.#places.size >= MAX_PLACES) this.#places.clear();
    const made = this.#found(series);
    this.#places.set(series, made);
    return made;
  }

  #found(series: string): Place {
    if (series === CLUSTER) return [this.#cluster, ''];
    const space = series.indexOf(' ');
    return [space === 4 ? this.#nodes : space === 5 ? this.#topics : this.#channels, series.slice(space + 1)];
  }

  /** Whether enough is known of the last `polls` polls to tell how a metric changed. */
  covers(series: string, metric: Metric, polls: number): boolean {
    const ring = this.#ring(series, metric);
    let known = 0;
    for (let back = 0; ring !== null && back < Math.min(polls, ring.length); back++) {
      if (!Number.isNaN(ring.ago(back)) && ++known >= FEWEST_POLLS) return true;
    }
    return false;
  }

  /** The last `count` values of one metric, oldest first; empty for a row never seen. */
  recent(series: string, metric: Metric, count: number): number[] {
    return this.#ring(series, metric)?.last(count) ?? [];
  }

  /** Number of polls kept of a row; 0 for an unknown row. */
  polls(series: string): number {
    const [grid, key] = this.#place(series);
    return grid.polls(key);
  }

  /** Columns for a chart: Unix seconds, then one column per metric; null where nothing was known. */
  columns(series: string, metrics: readonly Metric[]): [number[], ...(number | null)[][]] {
    const polls = this.polls(series);
    const times = this.#times.last(polls);
    const columns = metrics.map((metric) => {
      const values = this.recent(series, metric, polls).map((value) => (Number.isNaN(value) ? null : value));
      // One metric may be known for longer than another; all end with the latest poll.
      return values.length < polls ? [...Array<null>(polls - values.length).fill(null), ...values] : values;
    });
    return [times, ...columns];
  }

  /** Change per second of a metric over the last `polls` polls; null before two are known. */
  slope(series: string, metric: Metric, polls: number): number | null {
    const ring = this.#ring(series, metric);
    if (ring === null) return null;
    const back = Math.min(polls, ring.length) - 1;
    const seconds = this.#times.ago(0) - this.#times.ago(back);
    if (!(seconds > 0)) return null;
    const slope = (ring.ago(0) - ring.ago(back)) / seconds;
    return Number.isNaN(slope) ? null : slope;
  }

  /**
   * How fast a metric rises over the last `polls` polls, as the difference of the means of their first and last third,
   * so that a burst at either end does not count as growth. Null before ten polls are known.
   */
  growth(series: string, metric: Metric, polls: number): number | null {
    const [grid, key] = this.#place(series);
    const ring = grid.ring(key, metric);
    const known = Math.min(polls, ring?.length ?? 0);
    if (ring === null || known < FEWEST_POLLS) return null;
    const third = Math.floor(known / 3);
    const rise = grid.rise(key, metric, known);
    const seconds = ((this.#times.ago(0) - this.#times.ago(known - 1)) * (known - third)) / (known - 1);
    return seconds > 0 && rise !== null && !Number.isNaN(rise) ? rise / seconds : null;
  }

  /** Whether a metric was above zero at any of the last `polls` polls. */
  any(series: string, metric: Metric, polls: number): boolean {
    const [grid, key] = this.#place(series);
    return grid.any(key, metric, polls);
  }
}

function sumsOf(snapshot: ClusterSnapshot): Map<string, TopicSums> {
  const backlog = backlogOf(snapshot);
  const [finished, emptied, rewound] = [new TopicRates(), new TopicRates(), new TopicRates()];
  for (const channel of snapshot.channels.values()) {
    finished.add(channel.topic, channel.finish_rate);
    emptied.add(channel.topic, channel.emptied_rate);
    rewound.add(channel.topic, channel.rewound_rate);
  }
  const sums = new Map<string, TopicSums>();
  for (const [name, topic] of snapshot.topics) {
    emptied.add(name, topic.emptied_rate);
    sums.set(name, { topic, backlog: backlog.get(name) ?? topic.depth, finished: finished.of(name), emptied: emptied.of(name), rewound: rewound.of(name) });
  }
  return sums;
}
