/** The errors of a failed request, by the fields of the form that sent it. */
import { ApiError, messageOf, sentence } from '../api/client';

/** Texts by field; `form` is that of the form as a whole. */
export type Faults = Record<string, string>;

/** An error in a part of a field belongs to the field: `notifiers.0` to `notifiers`. All others belong to `form`. */
export function faultsOf(error: unknown, fields: readonly string[]): Faults {
  if (!(error instanceof ApiError) || error.fieldErrors.length === 0) return { form: messageOf(error) };
  const faults: Faults = {};
  for (const { field, message } of error.fieldErrors) {
    const own = fields.find((name) => field === name || field.startsWith(`${name}.`));
    const text = sentence(own === undefined ? `${field}: ${message}` : message);
    const key = own ?? 'form';
    faults[key] = key in faults ? `${faults[key]} ${text}` : text;
  }
  return faults;
}
