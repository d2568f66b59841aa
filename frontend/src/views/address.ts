/** Addresses of saved views: the path and query of a page, without the base path. */
import { parsePath } from '../navigation/routes';
import { channelKey, type ClusterSnapshot } from '../snapshot/snapshot';

/** What an address names and the cluster does not have; empty if it has everything. */
export function goneFrom(address: string, snapshot: Pick<ClusterSnapshot, 'topics' | 'channels' | 'nodes'>): string {
  const route = parsePath(address.split('?')[0] ?? '');
  switch (route.page) {
    case 'topic':
      return snapshot.topics.has(route.topic) ? '' : `topic ${route.topic}`;
    case 'channel':
      if (!snapshot.topics.has(route.topic)) return `topic ${route.topic}`;
      return snapshot.channels.has(channelKey({ topic: route.topic, name: route.channel })) ? '' : `channel ${route.channel} of ${route.topic}`;
    case 'node':
      return snapshot.nodes.has(route.node) ? '' : `node ${route.node}`;
    case 'missing':
      return 'this page';
    default:
      return '';
  }
}

/** A name for a view of this page, such as `topics: orders`. */
export function suggestedName(address: string): string {
  const [path = '/', query = ''] = address.split('?');
  const words = new URLSearchParams(query);
  const where = path === '/' ? 'overview' : decodeURIComponent(path.slice(1));
  const what = [words.get('q'), words.get('filter')].filter((text) => text !== null && text !== '').join(', ');
  return (what ? `${where}: ${what}` : where).slice(0, 100);
}
