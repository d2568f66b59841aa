/** The command palette's results: matching places first, then actions. */
import type { ActionRequest } from '../api/types';
import type { ClusterSnapshot } from '../snapshot/snapshot';
import { hrefOf, type Route } from './routes';

export type PaletteItem = {
  key: string;
  kind: 'page' | 'topic' | 'channel' | 'node' | 'client' | 'action' | 'setting';
  text: string;
  hint: string;
  run:
    | { do: 'go'; href: string }
    | { do: 'open'; href: string } // of another cluster, which is another app
    | { do: 'ask'; request: ActionRequest }
    | { do: 'pause' | 'help' | 'theme-light' | 'theme-dark' | 'theme-system' };
};

export type PaletteSetting = { text: string; hint: string; run: PaletteItem['run'] };

const MAX_ITEMS = 40;
const VERBS = ['pause', 'unpause', 'empty', 'delete'] as const;
type Verb = (typeof VERBS)[number];

/**
 * A score of `text` for the typed words: null if one does not occur. A word at the beginning of the text, or of a part
 * of it, scores more than one within, and a short text more than a long one.
 */
export function fit(text: string, words: readonly string[]): number | null {
  const lower = text.toLowerCase();
  let score = 0;
  for (const word of words) {
    const at = lower.indexOf(word);
    if (at < 0) return null;
    const begins = at === 0 || /[^a-z0-9]/.test(lower[at - 1] ?? '');
    score += lower === word ? 100 : at === 0 ? 60 : begins ? 40 : lower.includes(`.${word}`) || lower.includes(` ${word}`) ? 30 : 10;
  }
  return score - Math.min(9, text.length / 20);
}

type Place = { kind: PaletteItem['kind']; text: string; hint: string; route: Route };

const placesOf = new WeakMap<ClusterSnapshot, Place[]>();

/** All places; computed once per snapshot, because each key searches them. */
function places(snapshot: ClusterSnapshot): Place[] {
  let found = placesOf.get(snapshot);
  if (found === undefined) {
    found = [];
    for (const { name, paused } of snapshot.topics.values()) {
      found.push({ kind: 'topic', text: name, hint: paused ? 'topic, paused' : 'topic', route: { page: 'topic', topic: name } });
    }
    for (const { topic, name, paused } of snapshot.channels.values()) {
      const route: Route = { page: 'channel', topic, channel: name };
      found.push({ kind: 'channel', text: `${topic} / ${name}`, hint: paused ? 'channel, paused' : 'channel', route });
    }
    for (const { id, hostname, state } of snapshot.nodes.values()) {
      found.push({ kind: 'node', text: id, hint: [`node ${state}`, hostname].filter(Boolean).join(', '), route: { page: 'node', node: id } });
    }
    placesOf.set(snapshot, found);
  }
  return found;
}

function verbOf(word: string | undefined): Verb[] {
  return word && word.length >= 2 ? VERBS.filter((verb) => verb.startsWith(word)) : [];
}

const topicOf = (route: Route): string => ('topic' in route ? route.topic : '');

function requestFor(verb: Verb, route: Route): ActionRequest | null {
  if (route.page === 'topic') return { action: verb, topic: route.topic };
  if (route.page === 'channel') return { action: verb, topic: route.topic, channel: route.channel };
  return null;
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function actionsOn(verb: Verb, found: readonly Place[], words: readonly string[]): [number, PaletteItem][] {
  return found.flatMap((place): [number, PaletteItem][] => {
    const request = requestFor(verb, place.route);
    const score = request && fit(place.text, words);
    if (request === null || score === null) return [];
    const key = `action ${verb} ${place.kind} ${place.text}`;
    return [[score, { key, kind: 'action', text: `${capital(verb)} ${place.text}`, hint: place.kind, run: { do: 'ask', request } }]];
  });
}

/**
 * `here` is the current page, whose topic or channel is the default subject of actions. `mayActOn` says on which topics
 * actions are offered, `mayReadOf` of which topics messages are.
 */
export function paletteItems(
  snapshot: ClusterSnapshot | null,
  typed: string,
  {
    here,
    mayActOn,
    mayReadOf = () => false,
    pages,
    settings,
  }: {
    here: Route;
    mayActOn: (topic: string) => boolean;
    mayReadOf?: (topic: string) => boolean;
    pages: readonly { href: string; text: string }[];
    settings: readonly PaletteSetting[];
  },
): PaletteItem[] {
  const words = typed.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const scored: [number, PaletteItem][] = [];
  const offer = (bonus: number, item: PaletteItem): void => {
    const score = fit(item.text, words);
    if (score !== null) scored.push([score + bonus, item]);
  };
  for (const page of pages) {
    offer(5, { key: `page ${page.href}`, kind: 'page', text: page.text, hint: 'page', run: { do: 'go', href: page.href } });
  }
  for (const setting of settings) {
    offer(0, { key: `setting ${setting.text}`, kind: 'setting', text: setting.text, hint: setting.hint, run: setting.run });
  }
  const all = snapshot ? places(snapshot) : [];
  if (words.length > 0) {
    for (const { kind, text, hint, route } of all) {
      offer(kind === 'topic' ? 3 : 1, { key: `${kind} ${text}`, kind, text, hint, run: { do: 'go', href: hrefOf(route) } });
    }
  }
  if (words.length > 0) {
    for (const verb of ['publish to', 'tail', 'messages of'] as const) {
      if (!verb.startsWith(words[0] ?? '')) continue;
      const kind = verb === 'messages of' ? 'channel' : 'topic';
      const may = verb === 'publish to' ? mayActOn : mayReadOf;
      const named = words.slice(1).filter((word) => word !== 'to' && word !== 'of');
      for (const place of all) {
        if (place.kind !== kind || (named.length === 0 && hrefOf(place.route) !== hrefOf(here))) continue;
        if (!may(topicOf(place.route))) continue;
        const score = fit(place.text, named);
        if (score === null) continue;
        const search = verb === 'tail' ? 'tail=on' : verb === 'publish to' ? 'publish=on' : 'messages=ready';
        const item = { kind: 'action' as const, text: `${capital(verb)} ${place.text}`, hint: kind, run: { do: 'go' as const, href: `${hrefOf(place.route)}?${search}` } };
        scored.push([score + 8, { key: `action ${verb} ${place.text}`, ...item }]);
      }
    }
  }
  const verbs = words.length === 0 ? VERBS : verbOf(words[0]);
  if (verbs.length > 0) {
    const rest = words.slice(1);
    const subjects = all.filter(({ route }) => (rest.length > 0 || hrefOf(route) === hrefOf(here)) && mayActOn(topicOf(route)));
    for (const verb of verbs) scored.push(...actionsOn(verb, subjects, rest).map(([score, item]): [number, PaletteItem] => [score + 8, item]));
  }
  return scored
    .sort((a, b) => b[0] - a[0])
    .slice(0, MAX_ITEMS)
    .map(([, item]) => item);
}
