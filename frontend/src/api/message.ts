/** Messages of websockets, checked before they are used: only those whose type and fields are known are passed on. */

type Fields = Record<string, unknown>;
/** For each type of a message, whether the fields that stores read have the right form. */
export type Checks<Message extends { type: string }> = { [Type in Message['type']]: (message: Fields) => boolean };

export function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Returns a function from a message's text to the message; null for one of an unknown type or an incomplete one. */
export function reader<Message extends { type: string }>(checks: Checks<Message>): (text: string) => Message | null {
  const byType = new Map(Object.entries<(message: Fields) => boolean>(checks));
  const isMessage = (value: unknown): value is Message =>
    isObject(value) && typeof value.type === 'string' && byType.get(value.type)?.(value) === true;
  return (text) => {
    const message = parsed(text);
    return isMessage(message) ? message : null;
  };
}
