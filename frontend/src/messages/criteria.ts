/** The form of a search, and its criteria. */
import type { Criteria } from '../api/criteria';
import { delayMs } from './bodies';

/** The texts of the form; empty ones restrict nothing. */
export type SearchForm = {
  text: string;
  match: 'text' | 'regex' | 'hex';
  id: string;
  header: string;
  minAttempts: string;
  maxAttempts: string;
  minAge: string;
  maxAge: string;
  minSize: string;
  maxSize: string;
};

export const EMPTY: SearchForm = { text: '', match: 'text', id: '', header: '', minAttempts: '', maxAttempts: '', minAge: '', maxAge: '', minSize: '', maxSize: '' };

/** A name, or a name, a colon and a text. */
const HEADER = /^[a-z0-9._-]{1,64}(\s*:.*)?$/i;
const UNITS: Record<string, number> = { '': 1, b: 1, k: 1024, kib: 1024, m: 1 << 20, mib: 1 << 20 };

/** `64k`, `1 MiB` or plain bytes; null if invalid. */
export function sizeOf(text: string): number | null {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text.trim()) ?? [];
  const factor = UNITS[(unit ?? '?').toLowerCase()];
  return amount === undefined || factor === undefined ? null : Math.round(Number(amount) * factor);
}

const RANGES = [
  {
    key: 'attempts',
    least: 'minAttempts',
    most: 'maxAttempts',
    help: 'A number of attempts, such as 3.',
    read: (text: string) => (/^\d{1,5}$/.test(text.trim()) ? Number(text) : null),
  },
  { key: 'age_ms', least: 'minAge', most: 'maxAge', help: 'A time such as 90s, 10m or 1h30m.', read: delayMs },
  { key: 'size', least: 'minSize', most: 'maxSize', help: 'A size such as 500, 64k or 1 MiB.', read: sizeOf },
] as const;

/** The criteria, or the errors by field. */
export function criteriaOf(form: SearchForm): { criteria: Criteria; faults: Partial<Record<keyof SearchForm, string>> } {
  const criteria: Criteria = {};
  const faults: Partial<Record<keyof SearchForm, string>> = {};
  if (form.text !== '') Object.assign(criteria, { text: form.text, match: form.match });
  if (form.id.trim() !== '') criteria.id = form.id.trim();
  const header = form.header.trim();
  if (header !== '' && !HEADER.test(header)) faults.header = 'A name such as tenant, or a name and text such as tenant:acme.';
  else if (header !== '') criteria.header = header;
  for (const { least, most, read, help, key } of RANGES) {
    for (const [field, end] of [[least, 'min'], [most, 'max']] as const) {
      if (form[field].trim() === '') continue;
      const value = read(form[field]);
      if (value === null) faults[field] = help;
      else criteria[`${end}_${key}`] = value;
    }
    const [low, high] = [criteria[`min_${key}`], criteria[`max_${key}`]];
    if (low != null && high != null && low > high) faults[most] = 'The maximum is less than the minimum.';
  }
  return { criteria, faults };
}
