import type { ClientOrder } from '../api/types';

const ORDERS: readonly ClientOrder[] = [
  ...(['topic', 'node', 'hostname', 'remote_address', 'user_agent'] as const),
  ...(['ready_count', 'in_flight_count', 'finish_count', 'requeue_count', 'connected_s'] as const),
];

/** A column by which the platform orders clients; `topic` for any other, which an address may name. */
export const orderOf = (column: string | undefined): ClientOrder => ORDERS.find((order) => order === column) ?? 'topic';
