/** The characters of a set in a glob as those of a regular expression. A range such as `z-a`, which the latter refuses, is left out. */
function characterClass(set: string): string {
  const sound = set.replace(/(.)-(.)/gs, (range: string, low: string, high: string) => (low <= high ? range : ''));
  return `[${sound.replace(/\\/g, '\\\\').replace(/\]/g, '\\]').replace(/^\^/, '\\^').replace(/^!/, '^')}]`;
}

/** Whether a glob (`*`, `?`, `[a-c]`, `[!a]`) matches the whole text, by the platform's rules. */
export function globMatches(pattern: string, text: string): boolean {
  let source = '';
  for (let at = 0; at < pattern.length; at++) {
    const each = pattern.charAt(at);
    const end = each === '[' ? pattern.indexOf(']', at + (pattern.charAt(at + 1) === '!' ? 3 : 2)) : -1;
    if (each === '*') source += '.*';
    else if (each === '?') source += '.';
    else if (end > 0) {
      source += characterClass(pattern.slice(at + 1, end));
      at = end;
    } else source += each.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
  }
  return new RegExp(`^(?:${source})$`, 's').test(text);
}
