/** Made from nsqwire/figures.py by `make docs`. */

/** The values of one node's share of a topic or channel, in the order they are sent. */
export const TOPIC_SHARE = ['node', 'paused', 'depth', 'message_count', 'publish_rate'] as const;
export const CHANNEL_SHARE = ['node', 'paused', 'depth', 'in_flight_count', 'deferred_count', 'message_count', 'client_count', 'dead_count'] as const;

/** The figures of the last hour. */
export type Metric =
  | 'byte_rate'
  | 'clients'
  | 'dead'
  | 'death_rate'
  | 'deferred'
  | 'depth'
  | 'drop_rate'
  | 'emptied_rate'
  | 'finish_rate'
  | 'in_flight'
  | 'oldest_age_ms'
  | 'p50_ms'
  | 'p99_ms'
  | 'publish_rate'
  | 'requeue_rate'
  | 'rewound_rate'
  | 'timeout_rate';
