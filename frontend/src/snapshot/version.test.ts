import { expect, test } from 'vitest';
import { versionOf } from './version';

test('a broker of this project has its release, another node the version of nsqd', () => {
  expect(versionOf({ release: '0.1.0', version: '1.3.0' })).toBe('brokerd 0.1.0');
  expect(versionOf({ release: '', version: '1.2.1' })).toBe('1.2.1');
});
