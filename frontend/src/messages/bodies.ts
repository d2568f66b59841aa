/** Bodies of messages, as bytes and as readable text. */
import { ApiError } from '../api/client';
import { faultsOf, type Faults } from '../forms/faults';

export function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export function base64Of(bytes: Uint8Array): string {
  let binary = '';
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

/** The bytes as text, or null if they are not text. A truncated last character is ignored. */
export function textOf(bytes: Uint8Array, truncated = false): string | null {
  for (const cut of truncated ? [0, 1, 2, 3] : [0]) {
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, bytes.length - cut));
      return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
    } catch {
      continue;
    }
  }
  return null;
}

/** Rows of sixteen bytes: offset, bytes, and printable ASCII characters. */
export function hexOf(bytes: Uint8Array): string {
  const rows: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const ascii = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    rows.push(`${at.toString(16).padStart(4, '0')}  ${hex.padEnd(47)}  ${ascii}`);
  }
  return rows.join('\n');
}

/** One message, or one for each line that is not empty. */
export function messagesOf(text: string, onePerLine: boolean): string[] {
  return onePerLine ? text.split(/\r?\n/).filter((line) => line !== '') : text === '' ? [] : [text];
}

const FIELDS = ['bodies', 'headers', 'defer_ms', 'node'];

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** `90s`, `1h30m`, `500ms` or plain seconds as milliseconds; 0 if empty, null if invalid. */
export function delayMs(text: string): number | null {
  const given = text.trim();
  if (given === '') return 0;
  if (/^\d+(\.\d+)?$/.test(given)) return Math.round(Number(given) * 1000);
  if (!/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(given)) return null;
  return Math.round([...given.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)].reduce((sum, [, n, unit]) => sum + Number(n) * (UNITS[unit ?? ''] ?? 0), 0));
}

/** Headers typed as `name: value`, one a line; null if a line has no colon or a name appears twice. */
export function headersOf(text: string): Record<string, string> | null {
  const headers = new Map<string, string>();
  for (const line of text.split(/\r?\n/).filter((each) => each.trim() !== '')) {
    const [, name, value] = /^([^:]*):(.*)$/.exec(line) ?? [];
    if (name === undefined || value === undefined || headers.has(name.trim())) return null;
    headers.set(name.trim(), value.trim());
  }
  return Object.fromEntries(headers);
}

/**
 * The errors of a refused publish, by field. The invalid one of several messages is identified by its number, from 1.
 */
export function publishFaults(error: unknown, number: number): Faults {
  if (!(error instanceof ApiError) || number === 1) return faultsOf(error, FIELDS);
  const named = error.fieldErrors.map(({ field, message }) => {
    const at = /^bodies\.(\d+)$/.exec(field)?.[1];
    return { field, message: at === undefined ? message : `message ${Number(at) + 1}: ${message}` };
  });
  return faultsOf(new ApiError(error.status, error.message, named), FIELDS);
}
