/** Names of topics and channels. */

const NAME = /^[.a-zA-Z0-9_-]{1,64}$/;

export const NAME_HINT = 'Letters, digits, and . _ - ; up to 64. End it with #ephemeral if it should not be kept on disk.';

/** Why `name` is invalid as a topic or channel name; null if it is valid. */
export function nameFault(name: string): string | null {
  if (name === '') return 'Enter a name.';
  const plain = name.endsWith('#ephemeral') ? name.slice(0, -'#ephemeral'.length) : name;
  if (name.length > 64) return `At most 64 characters; this has ${name.length}.`;
  if (!NAME.test(plain)) return 'Letters, digits, and . _ - only, with #ephemeral at the end if it should not be stored on disk.';
  return null;
}
