/** A job's form: from what it says of its parameters to texts in fields, and back to values. */
import type { Parameters, ParameterSpec, ParameterValue } from '../api/types';

export type Texts = Record<string, string>;

/** A point in time as `<input type="datetime-local">` wants it, in the viewer's zone. */
function localText(iso: string): string {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return '';
  const two = (n: number): string => String(n).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

function textOf(spec: ParameterSpec, value: ParameterValue): string {
  if (value === null) return '';
  return spec.type === 'datetime' && typeof value === 'string' ? localText(value) : String(value);
}

/** What stands in the fields at first: the given values, else the job's defaults. */
export function textsOf(specs: Record<string, ParameterSpec>, values: Parameters = {}): Texts {
  return Object.fromEntries(
    Object.entries(specs).map(([name, spec]) => [name, textOf(spec, values[name] ?? spec.default ?? null)]),
  );
}

function valueOf(spec: ParameterSpec, text: string): ParameterValue | { fault: string } {
  const trimmed = text.trim();
  if (spec.type === 'boolean') return trimmed === 'true';
  if (trimmed === '') return null;
  switch (spec.type) {
    case 'integer':
      return /^[+-]?\d+$/.test(trimmed) ? Number(trimmed) : { fault: `A whole number is needed, not “${trimmed}”.` };
    case 'number':
      return Number.isFinite(Number(trimmed)) ? Number(trimmed) : { fault: `A number is needed, not “${trimmed}”.` };
    case 'datetime': {
      const at = new Date(trimmed);
      return Number.isNaN(at.getTime()) ? { fault: `A date and time is needed, not “${trimmed}”.` } : at.toISOString();
    }
    default:
      return trimmed;
  }
}

/** The values to send, and for each field that cannot be read why. An empty field is null, the job's own choice. */
export function parseTexts(
  specs: Record<string, ParameterSpec>,
  texts: Texts,
): { values: Parameters; faults: Record<string, string> } {
  const values: Parameters = {};
  const faults: Record<string, string> = {};
  for (const [name, spec] of Object.entries(specs)) {
    const value = valueOf(spec, texts[name] ?? '');
    if (typeof value === 'object' && value !== null) faults[name] = value.fault;
    else values[name] = value;
  }
  return { values, faults };
}

/** Parameters on one line; those left to the job are not named. */
export function describe(parameters: Parameters): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== '');
  return given.length === 0 ? 'defaults' : given.map(([name, value]) => `${name} ${value}`).join(', ');
}
