/** What the API says is wrong with a form, by its fields: `name: a rule needs one; threshold: …`. */
import { sentence } from '../api/client';

/** What names none of `fields` is of the form as a whole, under `form`. */
export function faultsOf(message: string, fields: readonly string[]): Record<string, string> {
  const faults: Record<string, string> = {};
  const begins = new RegExp(`^(${fields.join('|')})(?:\\.\\w+)*: `, 'i');
  let last = 'form';
  for (const part of message.split('; ')) {
    const found = begins.exec(part);
    if (found?.[1]) last = found[1].toLowerCase();
    const text = found ? part.slice(found[0].length) : part;
    faults[last] = faults[last] ? `${faults[last]}; ${text}` : text;
  }
  return Object.fromEntries(Object.entries(faults).map(([field, text]) => [field, sentence(text)]));
}
