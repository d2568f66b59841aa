/** A decoded body: values as texts, so that no number is rounded. */
export type Leaf = { kind: 'string' | 'number' | 'literal' | 'bytes'; text: string };
/** `key` is null in a list. */
export type Child = { key: string | null; value: Tree };
export type Branch = { kind: 'map' | 'list'; children: Child[] };
export type Tree = Leaf | Branch;

/** A deeper body is shown as text or hex. */
export const DEEPEST = 200;

export class NotDecoded extends Error {}

export function isBranch(tree: Tree): tree is Branch {
  return tree.kind === 'map' || tree.kind === 'list';
}

/** Whether the tree has at most `most` values. It does not visit many more. */
export function isSmall(tree: Tree, most: number): boolean {
  const left = [tree];
  for (let seen = 1; ; seen++) {
    const each = left.pop();
    if (each === undefined) return true;
    if (seen > most || left.length > most) return false;
    if (isBranch(each)) {
      if (each.children.length > most) return false;
      left.push(...each.children.map(({ value }) => value));
    }
  }
}

export function bytesLeaf(bytes: Uint8Array): Leaf {
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return { kind: 'bytes', text: bytes.length === 0 ? '0 bytes' : `bytes ${hex}` };
}

/** Seconds since 1970 and nanoseconds as RFC 3339, with all digits. */
export function instantLeaf(seconds: bigint | number, nanos: number): Leaf {
  const date = new Date(Number(seconds) * 1000);
  if (Number.isNaN(date.getTime())) return { kind: 'literal', text: `${seconds} s ${nanos} ns` };
  const fraction = nanos === 0 ? '' : `.${String(nanos).padStart(9, '0').replace(/0+$/, '')}`;
  return { kind: 'literal', text: `${date.toISOString().slice(0, -5)}${fraction}Z` };
}
