/** The finish rates of a channel's clients since the page was opened, for their sparklines. */
import type { WatchedClient } from '../api/types';

const KEPT = 120;

export const clientKey = (client: { node: string; remote_address: string }): string => `${client.node} ${client.remote_address}`;

/** Share of the RDY count in use, 0 to 1 or more; null for a client that is not ready for messages. */
export const shareInUse = ({ in_flight_count, ready_count }: { in_flight_count: number; ready_count: number }): number | null =>
  ready_count > 0 ? in_flight_count / ready_count : null;

export class ClientRates {
  #rates = new Map<string, (number | null)[]>();

  /** Add a rate of each client; others are forgotten. */
  record(clients: readonly WatchedClient[]): void {
    this.#rates = new Map(
      clients.map((client): [string, (number | null)[]] => {
        const key = clientKey(client);
        return [key, [...(this.#rates.get(key) ?? []), client.finish_rate].slice(-KEPT)];
      }),
    );
  }

  of(client: WatchedClient): readonly (number | null)[] {
    return this.#rates.get(clientKey(client)) ?? [];
  }
}
