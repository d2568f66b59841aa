import type { ClientRow } from '../../api/types';

/** The host, and the client's own name if it differs. */
export function clientName(client: ClientRow): string {
  const host = client.hostname || client.remote_address;
  const same = client.client_id === host || client.client_id === host.split('.')[0];
  return same || !client.client_id ? host : `${client.client_id} (${host})`;
}
