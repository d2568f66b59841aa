import type { Me } from '../../api/types';
import type { Route } from '../../navigation/routes';

type Place = { href: string; text: string; pages: readonly Route['page'][]; accounts?: true; admins?: true };

/**
 * The places of the header and the palette, in groups. `pages` are the routes for which a place is marked as current;
 * `accounts` ones are offered only to those who may manage accounts, `admins` ones to administrators of the cluster.
 */
const GROUPS: { name: string; places: Place[] }[] = [
  {
    name: 'Cluster',
    places: [
      { href: '/', text: 'Overview', pages: ['overview', 'counter'] },
      { href: '/topics', text: 'Topics', pages: ['topics', 'topic', 'life'] },
      { href: '/channels', text: 'Channels', pages: ['channels', 'channel'] },
      { href: '/dead', text: 'Dead letters', pages: ['dead'] },
      { href: '/clients', text: 'Clients', pages: ['clients'] },
      { href: '/nodes', text: 'Nodes', pages: ['nodes', 'node', 'lookup'] },
    ],
  },
  {
    name: 'Monitoring',
    places: [
      { href: '/alerts', text: 'Alerts', pages: ['alerts', 'objectives', 'objective'] },
      { href: '/reports', text: 'Reports', pages: ['reports', 'run', 'archive', 'columns'] },
    ],
  },
  {
    name: 'Administration',
    places: [
      { href: '/audit', text: 'Audit', pages: ['audit'] },
      { href: '/people', text: 'People', pages: ['people'], accounts: true },
      { href: '/policies', text: 'Policies', pages: ['policies'] },
      { href: '/masks', text: 'Masks', pages: ['masks'], admins: true },
      { href: '/definitions', text: 'Definitions', pages: ['definitions'] },
    ],
  },
];

export const placeGroupsFor = (me: Me | null) =>
  GROUPS.map(({ name, places }) => ({
    name,
    places: places.filter((place) => (!place.accounts || me?.administers) && (!place.admins || me?.role === 'admin')),
  }));

/** All places, and the pages that others lead to. */
export const placesFor = (me: Me | null) => [
  ...placeGroupsFor(me).flatMap(({ places }) => places),
  { href: '/objectives', text: 'Objectives' },
  { href: '/counter', text: 'Counter' },
  { href: '/lookup', text: 'Registries and inactive topics' },
  { href: '/life', text: 'Life of a message' },
];
