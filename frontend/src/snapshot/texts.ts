/** Texts of channels that thousands of rows need each second. */

/** Largest number of texts that are remembered; when it is reached, all are forgotten. */
export const MAX_TEXTS = 200_000;

/**
 * Returns `make` with a memory: each topic and channel gets its text once. The hash of a new text would be computed again
 * in each lookup.
 */
export function madeOnce(make: (topic: string, channel: string) => string): (topic: string, channel: string) => string {
  const topics = new Map<string, Map<string, string>>();
  let size = 0;
  return (topic, channel) => {
    const known = topics.get(topic)?.get(channel);
    if (known !== undefined) return known;
    if (size === MAX_TEXTS) {
      topics.clear();
      size = 0;
    }
    const made = make(topic, channel);
    const channels = topics.get(topic);
    if (channels === undefined) topics.set(topic, new Map([[channel, made]]));
    else channels.set(channel, made);
    size += 1;
    return made;
  };
}
