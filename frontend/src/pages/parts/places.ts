import type { Role } from '../../api/types';
import type { Route } from '../../navigation/routes';

/**
 * The pages that the header and the palette lead to. `pages` are the routes for which a place is marked as current;
 * `admin` ones are offered to admins alone.
 */
const PLACES: { href: string; text: string; pages: readonly Route['page'][]; admin?: true }[] = [
  { href: '/', text: 'Overview', pages: ['overview'] },
  { href: '/topics', text: 'Topics', pages: ['topics', 'topic'] },
  { href: '/channels', text: 'Channels', pages: ['channels', 'channel'] },
  { href: '/clients', text: 'Clients', pages: ['clients'] },
  { href: '/nodes', text: 'Nodes', pages: ['nodes', 'node'] },
  { href: '/alerts', text: 'Alerts', pages: ['alerts'] },
  { href: '/reports', text: 'Reports', pages: ['reports', 'run'] },
  { href: '/lookup', text: 'Lookup', pages: ['lookup'] },
  { href: '/counter', text: 'Counter', pages: ['counter'] },
  { href: '/audit', text: 'Audit', pages: ['audit'] },
  { href: '/people', text: 'People', pages: ['people'], admin: true },
];

export const placesFor = (role: Role | undefined) => PLACES.filter((place) => !place.admin || role === 'admin');
