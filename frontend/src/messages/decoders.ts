/** The formats in which bodies are shown. To add one, add a declaration to `BUILT_IN`, in the order of detection. */
import { hexOf, textOf } from './bodies';
import { jsonTree } from './json';
import { msgpackTree } from './msgpack';
import type { ProtobufReader } from './protobuf';
import { NotDecoded, type Tree } from './tree';

export type Decoded = { tree: Tree } | { text: string; wraps: boolean };

export type Decoder = {
  key: string;
  label: string;
  /** Whether it needs all bytes of a body. */
  needsAll: boolean;
  /** Whether the detected format may be this one. */
  detect: (bytes: Uint8Array, truncated: boolean) => boolean;
  /** Raises NotDecoded, whose message is shown beside the body. */
  decode: (bytes: Uint8Array, truncated: boolean) => Decoded;
};

const json: Decoder = {
  key: 'json',
  label: 'JSON',
  needsAll: true,
  detect: (bytes) => /^\s*[[{]/.test(textOf(bytes.subarray(0, 64), true) ?? ''),
  decode: (bytes) => {
    const text = textOf(bytes);
    if (text === null) throw new NotDecoded('these bytes are not UTF-8 text');
    return { tree: jsonTree(text) };
  },
};
const msgpack: Decoder = {
  key: 'msgpack',
  label: 'MessagePack',
  needsAll: true,
  // Maps and lists only: any single byte below 0x80 is a number in MessagePack. Neither begins valid UTF-8 text.
  detect: ([first = 0]) => (first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf),
  decode: (bytes) => ({ tree: msgpackTree(bytes) }),
};
const text: Decoder = {
  key: 'text',
  label: 'text',
  needsAll: false,
  detect: (bytes, truncated) => textOf(bytes, truncated) !== null,
  decode: (bytes, truncated) => {
    const found = textOf(bytes, truncated);
    if (found === null) throw new NotDecoded('these bytes are not UTF-8 text');
    return { text: found, wraps: true };
  },
};
const hex: Decoder = {
  key: 'hex',
  label: 'hex',
  needsAll: false,
  detect: () => true,
  decode: (bytes) => ({ text: hexOf(bytes), wraps: false }),
};

export const BUILT_IN: readonly Decoder[] = [json, msgpack, text, hex];

/** One message type of a topic. A `reader` that is a text is the reason why the descriptors cannot be used. */
export function protobufDecoder(id: number, typeName: string, reader: ProtobufReader | string): Decoder {
  return {
    key: `protobuf-${id}`,
    label: `Protocol Buffers: ${typeName}`,
    needsAll: true,
    detect: (bytes) => typeof reader !== 'string' && reader.fits(bytes),
    decode: (bytes) => {
      if (typeof reader === 'string') throw new NotDecoded(reader);
      return { tree: reader.tree(bytes) };
    },
  };
}

/** The built-in decoders with those of message types, which are tried after JSON and before text. */
export function withTypes(types: readonly Decoder[]): readonly Decoder[] {
  return [json, ...types, msgpack, text, hex];
}

/** `fault`: why the chosen format does not fit; the body is then shown as text or hex. */
export type Shown = { key: string; decoded: Decoded; fault: string };

const TRUNCATED = 'only the beginning of this body is loaded';

/** The body in a format; `auto` is the first one that fits. */
export function shown(bytes: Uint8Array, as: string, decoders: readonly Decoder[], truncated = false): Shown {
  const chosen = decoders.find(({ key }) => key === as);
  let fault = '';
  for (const decoder of chosen ? [chosen, text, hex] : decoders) {
    try {
      if (decoder !== chosen && !decoder.detect(bytes, truncated)) continue;
      if (decoder.needsAll && truncated) throw new NotDecoded(TRUNCATED);
      return { key: decoder.key, decoded: decoder.decode(bytes, truncated), fault };
    } catch (error) {
      if (!(error instanceof NotDecoded)) throw error;
      if (decoder === chosen) fault = `Not shown as ${decoder.label}: ${error.message}.`;
    }
  }
  return { key: hex.key, decoded: hex.decode(bytes, truncated), fault };
}

/** The beginning of a body on one line. */
export function beginning(bytes: Uint8Array, characters = 200): string {
  const start = bytes.subarray(0, characters);
  const found = textOf(start, start.length < bytes.length || bytes.length > 3);
  if (found !== null) return found.replace(/\s+/g, ' ').trim();
  return Array.from(start.subarray(0, 48), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
}
