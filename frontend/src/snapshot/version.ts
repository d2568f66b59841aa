/** What a node runs. */
import type { NodeRow } from '../api/types';

/** `brokerd 0.1.0` of our broker, and the version of Go's nsqd or of a node that has not answered. */
export function versionOf({ release, version }: Pick<NodeRow, 'release' | 'version'>): string {
  return release ? `brokerd ${release}` : version;
}
