import { describe, expect, it } from 'vitest';
import { criteriaOf, EMPTY, sizeOf } from './criteria';

describe('the form of a search', () => {
  it('becomes criteria, without those that are empty', () => {
    expect(criteriaOf(EMPTY)).toEqual({ criteria: {}, faults: {} });
    expect(criteriaOf({ ...EMPTY, text: 'a', match: 'hex', id: ' 00ff ', minAttempts: '3', minAge: '1h30m', minSize: '64k' })).toEqual({
      criteria: { text: 'a', match: 'hex', id: '00ff', min_attempts: 3, min_age_ms: 5_400_000, min_size: 65_536 },
      faults: {},
    });
  });

  it('has maxima, which are at least the minima', () => {
    expect(criteriaOf({ ...EMPTY, maxAttempts: '0', minAge: '1m', maxAge: '1h', maxSize: '1k' })).toEqual({
      criteria: { max_attempts: 0, min_age_ms: 60_000, max_age_ms: 3_600_000, max_size: 1024 },
      faults: {},
    });
    expect(Object.keys(criteriaOf({ ...EMPTY, minSize: '2k', maxSize: '1k' }).faults)).toEqual(['maxSize']);
  });

  it.each(['tenant', 'Trace-Parent', 'tenant:acme', 'url: http://a:1', 'tenant:'])('takes the header %s', (header) => {
    expect(criteriaOf({ ...EMPTY, header: ` ${header} ` })).toEqual({ criteria: { header }, faults: {} });
  });

  it.each(['two words', ':acme', 'tänant', 'x'.repeat(65)])('refuses the header %s', (header) => {
    const { criteria, faults } = criteriaOf({ ...EMPTY, header });
    expect([criteria, Object.keys(faults)]).toEqual([{}, ['header']]);
  });

  it('names the fields that cannot be read', () => {
    const { faults } = criteriaOf({ ...EMPTY, minAttempts: 'many', minAge: 'soon', minSize: '3 miles' });
    expect(Object.keys(faults)).toEqual(['minAttempts', 'minAge', 'minSize']);
  });

  it.each([['500', 500], ['1.5k', 1536], ['2 MiB', 2_097_152], ['x', null], ['', null]])('reads the size %s', (text, size) => {
    expect(sizeOf(text)).toBe(size);
  });
});
