/** The last minutes of every row's numbers, kept by the browser from the beats it has seen. */
import { channelKey, backlogOf, totalsOf, type Picture } from './picture';

/** A ring of the last `capacity` numbers; NaN stands for "not known at that beat". Grows as it fills. */
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

  /** The last `count` values (all by default), oldest first. */
  last(count = this.length): number[] {
    const taken = Math.min(count, this.length);
    const values = new Array<number>(taken);
    for (let i = 0; i < taken; i++) {
      values[i] = this.#values[(this.#start + this.length - taken + i) % this.#values.length] as number;
    }
    return values;
  }
}

export type Metric = 'depth' | 'publish_rate' | 'finish_rate' | 'in_flight' | 'clients';
type Values = Partial<Record<Metric, number | null>>;
type Track = { born: number; rings: Map<Metric, Ring> };

export const CLUSTER = 'cluster';
export const topicSeries = (name: string): string => `topic ${name}`;
export const channelSeries = (topic: string, name: string): string => `channel ${topic}/${name}`;
export const nodeSeries = (id: string): string => `node ${id}`;

export class History {
  #times: Ring;
  #tracks = new Map<string, Track>();
  #beats = 0;

  constructor(readonly keep = 600) {
    this.#times = new Ring(keep);
  }

  /** Take the picture's numbers as the next beat; rows that are gone are forgotten. */
  record(picture: Picture): void {
    this.#times.push(picture.takenAt / 1000);
    this.#beats += 1;
    const seen = new Set<string>();
    const put = (series: string, values: Values): void => {
      seen.add(series);
      this.#put(series, values);
    };
    const totals = totalsOf(picture);
    put(CLUSTER, {
      depth: totals.depth,
      publish_rate: totals.publishRate,
      finish_rate: totals.finishRate,
      in_flight: totals.inFlight,
      clients: totals.clients,
    });
    const finishRates = new Map<string, number>();
    for (const channel of picture.channels.values()) {
      put(`channel ${channelKey(channel)}`, {
        depth: channel.depth,
        publish_rate: channel.publish_rate,
        finish_rate: channel.finish_rate,
        in_flight: channel.in_flight_count,
      });
      finishRates.set(channel.topic, (finishRates.get(channel.topic) ?? 0) + (channel.finish_rate ?? 0));
    }
    const backlog = backlogOf(picture);
    for (const topic of picture.topics.values()) {
      put(topicSeries(topic.name), {
        depth: backlog.get(topic.name) ?? topic.depth,
        publish_rate: topic.publish_rate,
        finish_rate: finishRates.get(topic.name) ?? 0,
      });
    }
    for (const node of picture.nodes.values()) {
      const down = node.state === 'down';
      put(nodeSeries(node.id), {
        depth: down ? null : node.depth,
        publish_rate: node.publish_rate,
        finish_rate: node.finish_rate,
      });
    }
    for (const series of this.#tracks.keys()) if (!seen.has(series)) this.#tracks.delete(series);
  }

  /** The last `count` values of one metric, oldest first; empty for a row never seen. */
  recent(series: string, metric: Metric, count: number): number[] {
    return this.#tracks.get(series)?.rings.get(metric)?.last(count) ?? [];
  }

  /** Columns for a chart: unix seconds, then one column per metric; null where nothing was known. */
  columns(series: string, metrics: readonly Metric[]): [number[], ...(number | null)[][]] {
    const track = this.#tracks.get(series);
    const beats = track ? Math.min(this.keep, this.#beats - track.born) : 0;
    const times = this.#times.last(beats);
    const columns = metrics.map((metric) =>
      (track?.rings.get(metric)?.last(beats) ?? []).map((value) => (Number.isNaN(value) ? null : value)),
    );
    return [times, ...columns];
  }

  /** Change per second of a metric over the last `beats` beats; null before two are known. */
  slope(series: string, metric: Metric, beats: number): number | null {
    const values = this.recent(series, metric, beats);
    const times = this.#times.last(values.length);
    const first = values[0];
    const last = values.at(-1);
    const seconds = (times.at(-1) ?? 0) - (times[0] ?? 0);
    if (first === undefined || last === undefined || !(seconds > 0)) return null;
    const slope = (last - first) / seconds;
    return Number.isNaN(slope) ? null : slope;
  }

  #put(series: string, values: Values): void {
    let track = this.#tracks.get(series);
    if (track === undefined) {
      track = { born: this.#beats - 1, rings: new Map() };
      this.#tracks.set(series, track);
    }
    for (const [metric, value] of Object.entries(values) as [Metric, number | null][]) {
      let ring = track.rings.get(metric);
      if (ring === undefined) {
        ring = new Ring(this.keep);
        track.rings.set(metric, ring);
      }
      ring.push(value ?? NaN);
    }
  }
}
