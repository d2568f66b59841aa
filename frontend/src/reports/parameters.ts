/** A job's form: from the declarations of its parameters to texts in fields, and back to values. */
import type { Parameters, ParameterSpec, ParameterValue } from '../api/types';
import { DASH, dateTime } from '../format/format';
import { faultsOf, type Faults } from '../forms/faults';
import { inputOf } from '../history/window';

export type Texts = Record<string, string>;

/** A time as the value of a `datetime-local` input; empty if it is none. */
function localText(iso: string): string {
  const at = Date.parse(iso);
  return Number.isNaN(at) ? '' : inputOf(at / 1000);
}

/** The initial texts of the fields: the given values, otherwise the suggested ones of a new form, or the job's defaults. */
export function textsOf(specs: Record<string, ParameterSpec>, values: Parameters = {}): Texts {
  const hasValues = Object.keys(values).length > 0;
  const entries = Object.entries(specs).map(([name, spec]): [string, string] => {
    const text = String(values[name] ?? (hasValues ? null : spec.suggested) ?? spec.default ?? '');
    return [name, spec.type === 'datetime' ? localText(text) : text];
  });
  return Object.fromEntries(entries);
}

function valueOf(spec: ParameterSpec, text: string): string | number | { fault: string } {
  switch (spec.type) {
    case 'integer':
      if (!/^[+-]?\d+$/.test(text)) return { fault: `A whole number is needed, not “${text}”.` };
      if (spec.minimum != null && Number(text) < spec.minimum) return { fault: `At least ${spec.minimum}.` };
      if (spec.maximum != null && Number(text) > spec.maximum) return { fault: `At most ${spec.maximum}.` };
      return Number(text);
    case 'number': {
      const number = Number(text);
      if (!Number.isFinite(number)) return { fault: `A number is needed, not “${text}”.` };
      if (spec.minimum != null && number < spec.minimum) return { fault: `At least ${spec.minimum}.` };
      if (spec.maximum != null && number > spec.maximum) return { fault: `At most ${spec.maximum}.` };
      return number;
    }
    case 'datetime': {
      const at = new Date(text);
      return Number.isNaN(at.getTime()) ? { fault: `A date and time is needed, not “${text}”.` } : at.toISOString();
    }
    case 'string':
      return text;
  }
}

/** The values to send, and the errors of invalid fields. An empty field is omitted, so the job uses its default. */
export function parseTexts(
  specs: Record<string, ParameterSpec>,
  texts: Texts,
): { values: Parameters; faults: Record<string, string> } {
  const values: Parameters = {};
  const faults: Record<string, string> = {};
  for (const [name, spec] of Object.entries(specs)) {
    const text = (texts[name] ?? '').trim();
    if (text === '') continue;
    const value = valueOf(spec, text);
    if (typeof value === 'object') faults[name] = value.fault;
    else values[name] = value;
  }
  return { values, faults };
}

/** The errors of a refused request with a job's parameters: those of parameters, and those of `fields`. */
export function requestFaults(
  error: unknown,
  specs: Record<string, ParameterSpec>,
  fields: readonly string[] = [],
): { parameters: Faults; request: Faults } {
  const prefix = 'parameters.';
  const all = Object.entries(faultsOf(error, [...fields, ...Object.keys(specs).map((name) => prefix + name)]));
  return {
    parameters: Object.fromEntries(all.flatMap(([field, text]) => (field.startsWith(prefix) ? [[field.slice(prefix.length), text]] : []))),
    request: Object.fromEntries(all.filter(([field]) => !field.startsWith(prefix))),
  };
}

/** The address of a job's form with these parameters. */
export function formHref(job: string, parameters: Parameters): string {
  const search = new URLSearchParams({ job });
  for (const [name, value] of Object.entries(parameters)) if (value !== null && value !== '') search.set(`p.${name}`, String(value));
  return `/reports?${search}`;
}

/** The parameters that such an address names. */
export function parametersIn(search: URLSearchParams): Parameters {
  return Object.fromEntries([...search].flatMap(([name, value]) => (name.startsWith('p.') ? [[name.slice(2), value]] : [])));
}

/** Beyond it, all digits are more than anybody reads; a parameter of an earlier version may be as large. */
const MOST = 1e15;

function valueText(spec: ParameterSpec | undefined, value: ParameterValue): string {
  if (value === null || value === '') return DASH;
  if (spec?.type === 'datetime') {
    const at = Date.parse(String(value));
    return Number.isNaN(at) ? String(value) : dateTime(at);
  }
  if (spec?.type !== 'integer' && spec?.type !== 'number') return String(value);
  const number = Number(value);
  return Number.isFinite(number) && Math.abs(number) < MOST ? number.toLocaleString('en-US', { maximumSignificantDigits: 15 }) : String(value);
}

/** Parameters as people read them: titles as in the form, times in the viewer's zone, numbers with separators. */
export function factsOf(specs: Record<string, ParameterSpec>, parameters: Parameters): { name: string; label: string; text: string }[] {
  return Object.entries(parameters).map(([name, value]) => {
    const words = name.replaceAll('_', ' ');
    return { name, label: specs[name]?.title ?? words.charAt(0).toUpperCase() + words.slice(1), text: valueText(specs[name], value) };
  });
}

/** Parameters on one line, without those that are not given. */
export function describe(parameters: Parameters, specs: Record<string, ParameterSpec> = {}): string {
  const given = factsOf(specs, parameters).filter(({ text }) => text !== DASH);
  return given.length === 0 ? 'defaults' : given.map(({ label, text }) => `${label}: ${text}`).join('; ');
}
