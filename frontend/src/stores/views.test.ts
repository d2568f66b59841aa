import { expect, test, vi } from 'vitest';
import type { SavedView } from '../api/types';
import { ViewStore } from './views.svelte';

test('the views of a session that has ended are not shown to the next user', async () => {
  const own = { id: 1, name: 'mine', is_own: true } as SavedView;
  vi.stubGlobal('fetch', async () => new Response(JSON.stringify({ views: [own] }), { status: 200 }));
  const views = new ViewStore();
  await views.read();
  expect(views.own).toEqual([own]);
  const late = views.read();
  views.forget();
  await late;
  expect(views.own).toEqual([]);
  vi.unstubAllGlobals();
});
