/** Addresses of pages, built and parsed. Names are percent-encoded: `#ephemeral` is `%23ephemeral`. */

import { ORIGIN } from '../api/base';
import type { ViewOf } from '../api/types';

/** The pages whose address is their name. */
const NAMED = [
  'topics',
  'channels',
  'dead',
  'clients',
  'nodes',
  'counter',
  'lookup',
  'reports',
  'alerts',
  'objectives',
  'audit',
  'people',
  'account',
  'definitions',
  'masks',
  'policies',
  'life',
  'signin',
] as const;
type Named = (typeof NAMED)[number];

export type Route =
  | { page: 'overview' }
  | { page: Named }
  | { page: 'topic'; topic: string }
  | { page: 'channel'; topic: string; channel: string }
  | { page: 'node'; node: string }
  | { page: 'archive' }
  | { page: 'columns' }
  | { page: 'run'; id: number }
  | { page: 'objective'; id: number }
  | { page: 'view'; id: number }
  | { page: 'missing'; path: string };

/** What the page of a route shows of the snapshot: one topic, one node, or everything. */
export function viewOf(route: Route): ViewOf {
  if (route.page === 'topic' || route.page === 'channel') return { topic: route.topic };
  return route.page === 'node' ? { node: route.node } : {};
}

/**
 * One name as a path segment. `.` and `..` are valid topic names, which every browser would resolve, percent-encoded or
 * not, so they get a `~`, which no name may contain.
 */
function segment(name: string): string {
  return (/^\.{1,2}$/.test(name) ? '~' : '') + encodeURIComponent(name);
}

function unsegment(text: string): string {
  return decodeURIComponent(text.replace(/^~(?=\.{1,2}$)/, ''));
}

export function hrefOf(route: Route): string {
  switch (route.page) {
    case 'overview':
      return '/';
    case 'topic':
      return `/topics/${segment(route.topic)}`;
    case 'channel':
      return `/topics/${segment(route.topic)}/${segment(route.channel)}`;
    case 'node':
      return `/nodes/${segment(route.node)}`;
    case 'archive':
      return '/reports/archive';
    case 'columns':
      return '/reports/columns';
    case 'run':
      return `/reports/runs/${route.id}`;
    case 'objective':
      return `/objectives/${route.id}`;
    case 'view':
      return `/views/${route.id}`;
    case 'missing':
      return route.path;
    default:
      return `/${route.page}`;
  }
}

export function parsePath(path: string): Route {
  const missing: Route = { page: 'missing', path };
  let parts: string[];
  try {
    parts = path.split('/').filter((part) => part !== '').map(unsegment);
  } catch {
    return missing; // a stray % that encodes nothing
  }
  const [head, first, second, ...rest] = parts;
  if (rest.length > 0) return missing;
  if (head === undefined) return { page: 'overview' };
  if (head === 'topics' && first !== undefined) {
    return second === undefined
      ? { page: 'topic', topic: first }
      : { page: 'channel', topic: first, channel: second };
  }
  if (head === 'nodes' && first !== undefined && second === undefined) return { page: 'node', node: first };
  if (head === 'reports' && first === 'archive' && second === undefined) return { page: 'archive' };
  if (head === 'reports' && first === 'columns' && second === undefined) return { page: 'columns' };
  if (head === 'reports' && first === 'runs' && second !== undefined && /^\d+$/.test(second)) {
    return { page: 'run', id: Number(second) };
  }
  if (head === 'objectives' && first !== undefined && second === undefined && /^\d+$/.test(first)) return { page: 'objective', id: Number(first) };
  if (head === 'views' && first !== undefined && second === undefined && /^\d+$/.test(first)) return { page: 'view', id: Number(first) };
  if (first !== undefined) return missing;
  const page = NAMED.find((name) => name === head);
  return page === undefined ? missing : { page };
}

/** The page above: a channel's topic, a topic's list. */
export function parentOf(route: Route): Route {
  switch (route.page) {
    case 'channel':
      return { page: 'topic', topic: route.topic };
    case 'topic':
      return { page: 'topics' };
    case 'node':
      return { page: 'nodes' };
    case 'archive':
    case 'columns':
    case 'run':
      return { page: 'reports' };
    case 'objective':
      return { page: 'objectives' };
    case 'objectives':
      return { page: 'alerts' };
    case 'life':
      return { page: 'topics' };
    default:
      return { page: 'overview' };
  }
}

/**
 * The page after signing in: a path of this site only. The address is parsed as browsers do, which drop tabs and line
 * ends and take `\` for `/`.
 */
export function returnPath(search: string): string {
  const next = new URLSearchParams(search).get('next') ?? '/';
  let target: URL;
  try {
    target = new URL(next, ORIGIN);
  } catch {
    return '/';
  }
  // `/.//host` is a path of this site that starts with two slashes, which a browser would take for a host.
  const elsewhere = target.origin !== ORIGIN || target.pathname.startsWith('//') || !/^[/\t\n\r]/.test(next);
  return elsewhere || parsePath(target.pathname).page === 'signin' ? '/' : target.pathname + target.search;
}
