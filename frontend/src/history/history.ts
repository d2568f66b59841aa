/** The last minutes of every row's figures, from the snapshots that this browser received. */
import type { Metric } from '../api/figures';
import type { ViewOf } from '../api/types';
import { channelKey, backlogOf, totalsOf, within, type ClusterSnapshot } from '../snapshot/snapshot';

/** 32-bit floats take half the memory; seven digits are enough for charts. */
type Cells = Float32Array | Float64Array;

/** A ring of the last `capacity` numbers; NaN is unknown. Grows as it fills. */
export class Ring {
  #values: Cells;
  #start = 0;
  length = 0;

  constructor(
    readonly capacity: number,
    readonly cells: new (length: number) => Cells = Float32Array,
  ) {
    this.#values = new cells(Math.min(capacity, 64));
  }

  push(value: number): void {
    if (this.length === this.#values.length && this.length < this.capacity) {
      const grown = new this.cells(Math.min(this.capacity, this.length * 2));
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

/** The recent records of one scope's series; record n of series s is of `times[n] + phases[s]`, in unix seconds. */
export type RecentSeries = {
  scope: 'cluster' | 'node' | 'topic' | 'channel';
  names: readonly string[];
  times: readonly number[];
  phases: readonly number[];
  /** For each name, a value for each time, or one that all share. */
  metrics: Readonly<Record<string, readonly (readonly (number | null)[])[]>>;
};

export type { Metric };
type Values = Partial<Record<Metric, number | null>>;
type Track = Map<Metric, Ring>;

export const CLUSTER = 'cluster';
export const topicSeries = (name: string): string => `topic ${name}`;
export const channelSeries = (topic: string, name: string): string => `channel ${topic}/${name}`;
export const nodeSeries = (id: string): string => `node ${id}`;

/** Number of polls kept of each row, by the number of rows: an hour, ten minutes, or two. */
const KEPT: readonly [rows: number, polls: number][] = [
  [300, 3600],
  [1500, 600],
  [Infinity, 120],
];

/** Smallest number of values from which growth is computed. */
const FEWEST_POLLS = 10;

export class History {
  #times: Ring;
  #tracks = new Map<string, Track>();

  constructor(readonly keep = 3600) {
    this.#times = new Ring(keep, Float64Array);
  }

  /**
   * Append the snapshot's numbers; rows that are gone are forgotten. Rows outside of `view` get NaN, because their
   * numbers in the snapshot are old.
   */
  record(snapshot: ClusterSnapshot, view: ViewOf = {}): void {
    this.#times.push(snapshot.takenAt / 1000);
    const seen = new Set<string>();
    const put = (series: string, values: Values): void => {
      seen.add(series);
      this.#put(series, values);
    };
    const miss = (series: string): void => {
      seen.add(series);
      for (const ring of this.#tracks.get(series)?.values() ?? []) ring.push(NaN);
    };
    if (view.topic !== undefined || view.node !== undefined) miss(CLUSTER);
    else {
      const totals = totalsOf(snapshot);
      put(CLUSTER, {
        depth: totals.depth,
        publish_rate: totals.publishRate,
        finish_rate: totals.finishRate,
        in_flight: totals.inFlight,
        clients: totals.clients,
      });
    }
    const finishRates = new Map<string, number>();
    for (const channel of snapshot.channels.values()) {
      if (!within(view, channel.topic, channel.nodes)) {
        miss(`channel ${channelKey(channel)}`);
        continue;
      }
      put(`channel ${channelKey(channel)}`, {
        depth: channel.depth,
        publish_rate: channel.publish_rate,
        finish_rate: channel.finish_rate,
        in_flight: channel.in_flight_count,
        timeout_rate: channel.timeout_rate,
        requeue_rate: channel.requeue_rate,
        clients: channel.client_count,
        oldest_age_ms: channel.oldest_age_ms,
        deferred: channel.deferred_count,
        p50_ms: channel.p50_ms,
        p99_ms: channel.p99_ms,
      });
      finishRates.set(channel.topic, (finishRates.get(channel.topic) ?? 0) + (channel.finish_rate ?? 0));
    }
    const backlog = backlogOf(snapshot);
    for (const topic of snapshot.topics.values()) {
      // A topic's backlog and rates are those of all its channels, and a node may not have all of them.
      if (view.node !== undefined || !within(view, topic.name, topic.nodes)) {
        miss(topicSeries(topic.name));
        continue;
      }
      put(topicSeries(topic.name), {
        depth: backlog.get(topic.name) ?? topic.depth,
        publish_rate: topic.publish_rate,
        finish_rate: finishRates.get(topic.name) ?? 0,
        in_flight: topic.in_flight_count,
        clients: topic.client_count,
        oldest_age_ms: topic.oldest_age_ms,
      });
    }
    for (const node of snapshot.nodes.values()) {
      const down = node.state === 'down';
      put(nodeSeries(node.id), {
        depth: down ? null : node.depth,
        publish_rate: node.publish_rate,
        finish_rate: node.finish_rate,
      });
    }
    for (const series of this.#tracks.keys()) if (!seen.has(series)) this.#tracks.delete(series);
  }

  /**
   * Take in records of the time before this browser's first snapshot, and of the times at which it looked elsewhere.
   * Values between two records are interpolated; those after the last are as it. Known values stay.
   */
  fill(recent: readonly RecentSeries[], stepS: number): void {
    if (this.#times.length === 0) return;
    this.#extend(Math.min(...recent.map(({ times }) => times[0] ?? Infinity)));
    for (const { scope, names, times, phases, metrics } of recent) {
      names.forEach((name, place) => {
        const track = this.#tracks.get(scope === 'cluster' ? CLUSTER : `${scope} ${name}`);
        if (track === undefined) return;
        const at = times.map((time) => time + (phases[place] ?? 0));
        for (const [metric, columns] of Object.entries(metrics) as [Metric, (number | null)[][]][]) {
          const ring = track.get(metric);
          if (ring !== undefined) track.set(metric, this.#filled(ring, at, columns[place] ?? [], stepS));
        }
      });
    }
  }

  /** Begin the times at `from`, with one each second. */
  #extend(from: number): void {
    const times = this.#times.last();
    const first = times[0] as number;
    if (!(from < first)) return;
    this.#times = new Ring(this.keep, Float64Array);
    for (let time = from; time < first - 0.5; time++) this.#times.push(time);
    for (const time of times) this.#times.push(time);
  }

  /** `ring` with what is unknown in it, or before its first value, as the records tell it. */
  #filled(ring: Ring, at: readonly number[], values: readonly (number | null)[], stepS: number): Ring {
    const steady = values.length === 1 ? values[0] : undefined;
    const valueOf = (record: number): number => (steady === undefined ? values[record] : steady) ?? NaN;
    const made = new Ring(ring.capacity);
    let next = 0; // the first record that is later
    for (let ago = Math.min(this.#times.length, ring.capacity) - 1; ago >= 0; ago--) {
      let value = ring.ago(ago);
      if (Number.isNaN(value)) {
        const time = this.#times.ago(ago);
        while (next < at.length && (at[next] as number) <= time) next++;
        const [before, after] = [at[next - 1], at[next]];
        if (before !== undefined && time - before <= 2 * stepS) {
          value = valueOf(next - 1);
          const later = valueOf(next);
          // A record that is not written yet follows soon: until then, the value is that of the last.
          if (after !== undefined && !Number.isNaN(later)) value += ((later - value) * (time - before)) / (after - before);
          else if (Number.isNaN(value) && next >= 2) value = valueOf(next - 2);
        }
      }
      if (made.length > 0 || !Number.isNaN(value)) made.push(value);
    }
    return made;
  }

  /** Whether enough is known of the last `polls` polls to tell how a metric changed. */
  covers(series: string, metric: Metric, polls: number): boolean {
    const ring = this.#tracks.get(series)?.get(metric);
    let known = 0;
    for (let back = 0; ring !== undefined && back < Math.min(polls, ring.length); back++) {
      if (!Number.isNaN(ring.ago(back)) && ++known >= FEWEST_POLLS) return true;
    }
    return false;
  }

  /** The last `count` values of one metric, oldest first; empty for a row never seen. */
  recent(series: string, metric: Metric, count: number): number[] {
    return this.#tracks.get(series)?.get(metric)?.last(count) ?? [];
  }

  /** Number of polls kept of a row; 0 for an unknown row. */
  polls(series: string): number {
    let most = 0;
    for (const ring of this.#tracks.get(series)?.values() ?? []) most = Math.max(most, ring.length);
    return most;
  }

  /** Columns for a chart: unix seconds, then one column per metric; null where nothing was known. */
  columns(series: string, metrics: readonly Metric[]): [number[], ...(number | null)[][]] {
    const track = this.#tracks.get(series);
    const polls = this.polls(series);
    const times = this.#times.last(polls);
    const columns = metrics.map((metric) => {
      const values = (track?.get(metric)?.last(polls) ?? []).map((value) => (Number.isNaN(value) ? null : value));
      // One metric may be known for longer than another; all end with the latest poll.
      return values.length < polls ? [...Array<null>(polls - values.length).fill(null), ...values] : values;
    });
    return [times, ...columns];
  }

  /** Change per second of a metric over the last `polls` polls; null before two are known. */
  slope(series: string, metric: Metric, polls: number): number | null {
    const ring = this.#tracks.get(series)?.get(metric);
    if (ring === undefined) return null;
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
    const ring = this.#tracks.get(series)?.get(metric);
    const known = Math.min(polls, ring?.length ?? 0);
    if (ring === undefined || known < FEWEST_POLLS) return null;
    const third = Math.floor(known / 3);
    let rise = 0;
    for (let back = 0; back < third; back++) rise += (ring.ago(back) - ring.ago(known - 1 - back)) / third;
    const seconds = ((this.#times.ago(0) - this.#times.ago(known - 1)) * (known - third)) / (known - 1);
    return seconds > 0 && !Number.isNaN(rise) ? rise / seconds : null;
  }

  /** Whether a metric was above zero at any of the last `polls` polls. */
  any(series: string, metric: Metric, polls: number): boolean {
    const ring = this.#tracks.get(series)?.get(metric);
    for (let back = 0; ring !== undefined && back < Math.min(polls, ring.length); back++) if (ring.ago(back) > 0) return true;
    return false;
  }

  #put(series: string, values: Values): void {
    let track = this.#tracks.get(series);
    if (track === undefined) {
      track = new Map();
      this.#tracks.set(series, track);
    }
    for (const [metric, value] of Object.entries(values) as [Metric, number | null][]) {
      let ring = track.get(metric);
      if (ring === undefined) {
        const [, most] = KEPT.find(([rows]) => this.#tracks.size <= rows) ?? [0, this.keep];
        ring = new Ring(Math.min(this.keep, most));
        track.set(metric, ring);
      }
      ring.push(value ?? NaN);
    }
  }
}
