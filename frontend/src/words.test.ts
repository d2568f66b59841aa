import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const SOURCE = import.meta.dirname;
const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((file) => /(?<!test)\.(ts|svelte)$/.test(file) && !file.endsWith('schema.d.ts'));

/** Each line of the sources that matches, with its file. */
function found(pattern: RegExp): string[] {
  return files.flatMap((file) =>
    readFileSync(join(SOURCE, file), 'utf8')
      .split('\n')
      .filter((line) => pattern.test(line))
      .map((line) => `${file}: ${line.trim()}`),
  );
}

test('numbers with a noun are written by `plural`, which has "1 message"', () => {
  const NOUNS = 'messages|topics|channels|clients|consumers|nodes|registries|files|rows|bytes|minutes|hours|days|seconds|windows|points|alerts|matches|accounts|people|jobs|runs';
  expect(files.length).toBeGreaterThan(100);
  expect(found(/plural\(/).length).toBeGreaterThan(50);
  // Constants are in capitals.
  expect(found(new RegExp(`\\{(?:count|short)?\\(?(?![A-Z_]+\\b)[^{}]*\\}\\s(?:${NOUNS})\\b(?!=)`)).filter((line) => !line.includes(': /**'))).toEqual([]);
});

test('words that the glossary replaces are on no page', () => {
  expect(found(/Refresh/).length).toBeGreaterThan(0);
  expect(found(/Look again|sees to it|Seen to by|Beyond since|the picture|never may more|belong together|>Told</i)).toEqual([]);
});
