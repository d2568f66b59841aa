/** The criteria of a search for messages. */
import type { operations } from './schema';

type Query = operations['nsqplatform_cluster_api_messages_search']['parameters']['query'];
export type Criteria = Omit<Query, 'topic' | 'channel' | 'limit' | 'max_body_bytes'>;

/** The criteria that are set, as parameters of an address. */
export function textsOf(criteria: Criteria): Record<string, string> {
  const given = Object.entries(criteria).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}
