/**
 * Text that clients choose, such as client ids and user agents, shown so that it cannot imitate other text.
 *
 * Control, bidirectional and zero-width characters become their code points, `\u{202E}`. Text with right-to-left letters
 * is isolated, so that it does not reorder the text beside it.
 */

const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f]/gu;
/** Line ends, tabs and the joiners of scripts and emoji belong to a text of several lines. */
const INVISIBLE_IN_BODY = /(?![\t\n\r\u200c\u200d\ufe0f])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const FIRST_STRONG_ISOLATE = '\u2068';
const POP_ISOLATE = '\u2069';

function codePoint(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}}`;
}

/** One line of text. */
export function visible(text: string): string {
  const shown = text.replace(INVISIBLE, codePoint);
  return RIGHT_TO_LEFT.test(shown) ? FIRST_STRONG_ISOLATE + shown + POP_ISOLATE : shown;
}

/** A message's body. */
export function visibleBody(text: string): string {
  return text.replace(INVISIBLE_IN_BODY, codePoint);
}

/** An answer of the platform with every text in it made visible. */
export function withVisibleText<Value>(value: Value): Value {
  if (typeof value === 'string') return visible(value) as Value;
  if (Array.isArray(value)) return value.map(withVisibleText) as Value;
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, withVisibleText(each)])) as Value;
}
