import type { Role } from '../../api/types';
import type { Route } from '../../navigation/routes';

type Place = { href: string; text: string; pages: readonly Route['page'][]; admin?: true };

/**
 * The places of the header and the palette, in groups. `pages` are the routes for which a place is marked as current;
 * `admin` ones are offered only to admins.
 */
const GROUPS: { name: string; places: Place[] }[] = [
  {
    name: 'Cluster',
    places: [
      { href: '/', text: 'Overview', pages: ['overview', 'counter'] },
      { href: '/topics', text: 'Topics', pages: ['topics', 'topic'] },
      { href: '/channels', text: 'Channels', pages: ['channels', 'channel'] },
      { href: '/clients', text: 'Clients', pages: ['clients'] },
      { href: '/nodes', text: 'Nodes', pages: ['nodes', 'node', 'lookup'] },
    ],
  },
  {
    name: 'Monitoring',
    places: [
      { href: '/alerts', text: 'Alerts', pages: ['alerts'] },
      { href: '/reports', text: 'Reports', pages: ['reports', 'run'] },
    ],
  },
  {
    name: 'Administration',
    places: [
      { href: '/audit', text: 'Audit', pages: ['audit'] },
      { href: '/people', text: 'People', pages: ['people'], admin: true },
    ],
  },
];

export const placeGroupsFor = (role: Role | undefined) =>
  GROUPS.map(({ name, places }) => ({ name, places: places.filter((place) => !place.admin || role === 'admin') }));

/** All places, and the pages that others lead to. */
export const placesFor = (role: Role | undefined) => [
  ...placeGroupsFor(role).flatMap(({ places }) => places),
  { href: '/counter', text: 'Counter' },
  { href: '/lookup', text: 'Registries and inactive topics' },
];
