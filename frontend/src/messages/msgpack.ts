/** MessagePack as a tree. Integers of 64 bits are not rounded. */
import { decode, decodeTimestampToTimeSpec, EXT_TIMESTAMP, ExtData, ExtensionCodec } from '@msgpack/msgpack';
import { bytesLeaf, DEEPEST, instantLeaf, NotDecoded, type Child, type Tree } from './tree';

class Instant {
  constructor(
    readonly seconds: number,
    readonly nanos: number,
  ) {}
}

const extensionCodec = new ExtensionCodec();
extensionCodec.register({
  type: EXT_TIMESTAMP,
  encode: () => null,
  decode: (data) => {
    const { sec, nsec } = decodeTimestampToTimeSpec(data);
    return new Instant(sec, nsec);
  },
});

/** Before each key, so that a JavaScript object keeps the order of keys such as 1, and `__proto__` is an ordinary key. */
const MARK = '\u0000';

const LONGEST_KEY = 1000;

/** Raises NotDecoded. */
export function msgpackTree(bytes: Uint8Array): Tree {
  const most = bytes.length;
  try {
    const value = decode(bytes, {
      useBigInt64: true,
      extensionCodec,
      maxArrayLength: most,
      maxMapLength: most,
      maxStrLength: most,
      maxBinLength: most,
      maxExtLength: most,
      mapKeyConverter: (key) => {
        const leaf = treeOf(key, 0);
        if ('text' in leaf) return MARK + leaf.text;
        // Each map within a key doubles the escapes in the key's text.
        const text = JSON.stringify(leaf);
        if (text.length > LONGEST_KEY) throw new NotDecoded(`a map or list as a key has more than ${LONGEST_KEY} characters`);
        return MARK + text;
      },
    });
    return treeOf(value, 0);
  } catch (error) {
    if (error instanceof NotDecoded) throw error;
    throw new NotDecoded(error instanceof Error ? error.message : String(error));
  }
}

function treeOf(value: unknown, depth: number): Tree {
  if (depth > DEEPEST) throw new NotDecoded(`more than ${DEEPEST} levels deep`);
  if (typeof value === 'string') return { kind: 'string', text: JSON.stringify(value) };
  if (typeof value === 'number' || typeof value === 'bigint') return { kind: 'number', text: Object.is(value, -0) ? '-0' : String(value) };
  if (value instanceof Uint8Array) return bytesLeaf(value);
  if (value instanceof Instant) return instantLeaf(value.seconds, value.nanos);
  if (value instanceof ExtData) {
    const data = typeof value.data === 'function' ? value.data(0) : value.data;
    return { kind: 'bytes', text: `extension ${value.type}, ${bytesLeaf(data).text}` };
  }
  if (Array.isArray(value)) return { kind: 'list', children: value.map((each) => ({ key: null, value: treeOf(each, depth + 1) })) };
  if (typeof value === 'object' && value !== null) {
    const children: Child[] = Object.entries(value).map(([key, each]) => ({ key: key.slice(MARK.length), value: treeOf(each, depth + 1) }));
    return { kind: 'map', children };
  }
  return { kind: 'literal', text: value === null ? 'null' : String(value) };
}
