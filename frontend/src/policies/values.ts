/** The values of policies as texts and as rows of a form, and how the nodes of a cluster differ in them. */
import type { PolicyRow, PolicyValues } from '../api/types';

/** One key and its value, as typed. */
export type Entry = { key: string; value: string };
/** The nodes that have the same values; `policy` null: they lack the policy. */
export type Variant = { policy: PolicyValues | null; nodes: string[] };

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A text as it is, unless JSON would read it as another value; anything else as JSON. */
export function textOfValue(value: unknown): string {
  return typeof value === 'string' && parsed(value) === undefined ? value : JSON.stringify(value);
}

/** The value of a text: JSON, and otherwise the text itself. */
export function valueOf(text: string): unknown {
  const value = parsed(text);
  return value === undefined ? text : value;
}

/** Such as `max_attempts=5 retry_delay=1s..5m`. */
export const textOf = (values: PolicyValues): string =>
  Object.entries(values)
    .map(([key, value]) => `${key}=${textOfValue(value)}`)
    .join(' ');

export const entriesOf = (values: PolicyValues): Entry[] => Object.entries(values).map(([key, value]) => ({ key, value: textOfValue(value) }));

/** The values of the rows; rows without a key are left out. A text is returned if a key is given twice. */
export function valuesOf(entries: readonly Entry[]): PolicyValues | string {
  const given = entries.map(({ key, value }) => [key.trim(), valueOf(value.trim())] as const).filter(([key]) => key !== '');
  const twice = given.find(([key], at) => given.findIndex(([other]) => other === key) !== at);
  return twice === undefined ? Object.fromEntries(given) : `${twice[0]} is given twice.`;
}

/** The values in a JSON text, or what is wrong with it. */
export function valuesOfJson(text: string): PolicyValues | string {
  const value = parsed(text);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'Enter a JSON object, such as {"max_attempts": 5}.';
  return value as PolicyValues;
}

/** Such as `orders.* / billing`; `orders.*` for all channels. */
export const nameOf = ({ topic_pattern, channel_pattern }: Pick<PolicyRow, 'topic_pattern' | 'channel_pattern'>): string =>
  channel_pattern === '*' ? topic_pattern : `${topic_pattern} / ${channel_pattern}`;

function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return JSON.stringify(value);
  return `{${Object.entries(value)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([key, each]) => `${JSON.stringify(key)}:${canonical(each)}`)
    .join()}}`;
}

export const areEqual = (one: PolicyValues | null, other: PolicyValues | null): boolean => canonical(one) === canonical(other);

/** The nodes by their values; first those whose values the row shows, and last those that lack the policy. */
export function variantsOf({ policy, nodes }: Pick<PolicyRow, 'policy' | 'nodes'>): Variant[] {
  const variants: Variant[] = [];
  for (const each of nodes) {
    const same = variants.find((variant) => areEqual(variant.policy, each.policy));
    if (same) same.nodes.push(each.node);
    else variants.push({ policy: each.policy, nodes: [each.node] });
  }
  const rank = (variant: Variant): number => (areEqual(variant.policy, policy) ? 0 : variant.policy === null ? 2 : 1);
  return variants.sort((one, other) => rank(one) - rank(other));
}
