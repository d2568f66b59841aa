import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

/** Functions without state, in a folder for each noun. */
const NOUNS = ['alerts', 'audit', 'clients', 'definitions', 'format', 'forms', 'history', 'jobs', 'messages', 'navigation', 'objectives', 'patterns', 'policies', 'reports', 'snapshot', 'tables', 'views'];
const ORDER = [['api'], NOUNS, ['stores'], ['charts'], ['components'], ['pages']];
const SOURCE = import.meta.dirname;

const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((file) => /\.(ts|svelte)$/.test(file));

test('imports point left only: pages are built of components, those of charts, charts know stores, stores compute with nouns', () => {
  const layer = (path: string): number => ORDER.findIndex((folders) => folders.includes(relative(SOURCE, path).split('/')[0] ?? ''));
  const wrong: string[] = [];
  let seen = 0;
  for (const file of files) {
    const path = join(SOURCE, file);
    for (const [, target] of readFileSync(path, 'utf8').matchAll(/from '(\.[^']*)'/g)) {
      seen += 1;
      const from = layer(path);
      if (from >= 0 && layer(resolve(dirname(path), target ?? '')) > from) wrong.push(`${file} imports ${target}`);
    }
  }
  expect(seen).toBeGreaterThan(50);
  expect(wrong).toEqual([]);
});

test('each folder has its place in that order', () => {
  const folders = files.filter((file) => file.includes('/')).map((file) => file.split('/')[0]);
  expect([...new Set(folders)].sort()).toEqual(ORDER.flat().sort());
});

test('stores keep state, and all state is in stores', () => {
  const modules = files.filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'));
  const isStore = (file: string): boolean => file.startsWith('stores/');
  expect(modules.filter((file) => isStore(file) !== file.endsWith('.svelte.ts'))).toEqual([]);
});

test('stores export no functions but those of the tables and boxes that are on the page now', () => {
  const stores = files.filter((file) => file.startsWith('stores/') && file.endsWith('.svelte.ts'));
  const exported = stores.flatMap((file) =>
    [...readFileSync(join(SOURCE, file), 'utf8').matchAll(/^export (?:(?:async )?function\*? (\w+)|const (\w+)[^\n=]*= (?:async )?\()/gm)].map(
      ([, declared, assigned]) => declared ?? assigned,
    ),
  );
  expect(exported.sort()).toEqual(['currentTable', 'registerBox', 'registerTable', 'touchTable']);
});
