/** Texts of channels that thousands of rows need each second. */

/** Largest number of texts that are kept; beyond it, all are made again. */
export const MOST_KEPT = 200_000;

/** `make`, which makes the text of a topic's channel once. A new text would be hashed anew by each lookup. */
export function kept(make: (topic: string, channel: string) => string): (topic: string, channel: string) => string {
  const topics = new Map<string, Map<string, string>>();
  let size = 0;
  return (topic, channel) => {
    const known = topics.get(topic)?.get(channel);
    if (known !== undefined) return known;
    if (size === MOST_KEPT) {
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
