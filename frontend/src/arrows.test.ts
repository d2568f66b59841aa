import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

const ORDER = ['api', 'stores', 'charts', 'components', 'pages'];
const SOURCE = import.meta.dirname;

const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((file) => /\.(ts|svelte)$/.test(file));

test('imports point left only: pages are built of components, those of charts, charts know stores, stores speak to the api', () => {
  const layer = (path: string): number => ORDER.indexOf(relative(SOURCE, path).split('/')[0] ?? '');
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
