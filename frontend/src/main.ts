/** Requests the snapshot, and fetches the page's code meanwhile. */
import { unbased } from './api/base';
import { feedPath, openEarly, socketUrl } from './api/early';
import { parsePath, viewOf } from './navigation/routes';
import { fetchPage } from './pages/load';

const route = parsePath(unbased(window.location.pathname));
if (route.page !== 'signin') {
  openEarly(socketUrl(window.location, feedPath(viewOf(route))));
  fetchPage(route.page);
}
void import('./start');
