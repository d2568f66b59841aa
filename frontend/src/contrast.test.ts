import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const css = readFileSync(join(import.meta.dirname, 'app.css'), 'utf8');

type Pair = { light: string; dark: string };
const tokens = new Map(
  [...css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)].map(([, name, light, dark]) => [
    name as string,
    { light: light as string, dark: dark as string },
  ]),
);

function token(name: string): Pair {
  const pair = tokens.get(name);
  if (!pair) throw new Error(`app.css has no colour --${name}`);
  return pair;
}

/** Relative luminance as WCAG 2 defines it. */
function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

const GROUNDS = ['ground', 'surface', 'raised'];
const TEXTS: [string, string[]][] = [
  ['text', [...GROUNDS, 'ok-wash', 'warn-wash', 'bad-wash']],
  ['muted', GROUNDS],
  ['accent', GROUNDS],
  ['ok', ['surface', 'ok-wash']],
  ['warn', ['surface', 'ground', 'warn-wash']],
  ['bad', ['surface', 'ground', 'bad-wash']],
  ['on-accent', ['accent']],
  ['on-bad', ['bad-fill']],
];
const MARKS = ['publish', 'finish', 'depth', 'control', 'series-1', 'series-2', 'series-3', 'series-4', 'series-5'];

for (const theme of ['light', 'dark'] as const) {
  test.each(TEXTS)(`${theme}: %s can be read on %s`, (text, grounds) => {
    for (const ground of grounds) {
      expect(contrast(token(text)[theme], token(ground)[theme]), `on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
  });

  test.each(MARKS)(`${theme}: %s, a line or a border, can be seen`, (mark) => {
    expect(contrast(token(mark)[theme], token('surface')[theme])).toBeGreaterThanOrEqual(3);
  });
}
