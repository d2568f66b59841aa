import { SvelteMap } from 'svelte/reactivity';

const EXPECTED_WITHIN_MS = 30_000;

/** Topics and channels that were created here and may not be in the snapshot yet, by name. */
export class CreatedStore {
  #timers = new SvelteMap<string, ReturnType<typeof setTimeout>>();

  add(topic: string, channel?: string): void {
    const name = nameOf(topic, channel);
    clearTimeout(this.#timers.get(name));
    this.#timers.set(name, setTimeout(() => this.#timers.delete(name), EXPECTED_WITHIN_MS));
  }

  has(topic: string, channel?: string): boolean {
    return this.#timers.has(nameOf(topic, channel));
  }

  /** It is in the snapshot. */
  found(topic: string, channel?: string): void {
    const name = nameOf(topic, channel);
    clearTimeout(this.#timers.get(name));
    this.#timers.delete(name);
  }
}

const nameOf = (topic: string, channel?: string): string => (channel === undefined ? topic : `${topic}/${channel}`);
