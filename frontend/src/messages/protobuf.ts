/** Protocol Buffers as a tree, by the descriptors of a FileDescriptorSet. The library interprets descriptors: no eval. */
import { createFileRegistry, fromBinary, ScalarType, type DescEnum, type DescMessage, type FileRegistry, type Message } from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import { FileDescriptorSetSchema, type Any, type Timestamp } from '@bufbuild/protobuf/wkt';
import { bytesLeaf, DEEPEST, instantLeaf, NotDecoded, type Child, type Tree } from './tree';

export type ProtobufReader = {
  /** Raises NotDecoded. */
  tree: (bytes: Uint8Array) => Tree;
  /** Whether the bytes are this message, without a field that the descriptor does not have. */
  fits: (bytes: Uint8Array) => boolean;
};

/** Raises NotDecoded for a set that cannot be read, or without the message type. */
export function protobufReader(set: Uint8Array, typeName: string): ProtobufReader {
  const { registry, desc } = attempt(() => {
    const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, set));
    return { registry, desc: registry.getMessage(typeName) };
  });
  if (desc === undefined) throw new NotDecoded(`the descriptors have no message type ${typeName}`);
  const read = (bytes: Uint8Array): Message => attempt(() => fromBinary(desc, bytes));
  return {
    tree: (bytes) => attempt(() => messageTree(reflect(desc, read(bytes)), registry, 0)),
    fits: (bytes) => {
      try {
        return bytes.length > 0 && (read(bytes).$unknown ?? []).length === 0;
      } catch {
        return false;
      }
    },
  };
}

function attempt<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof NotDecoded) throw error;
    throw new NotDecoded(error instanceof Error ? error.message : String(error));
  }
}

function messageTree(of: ReflectMessage, registry: FileRegistry, depth: number): Tree {
  if (depth > DEEPEST) throw new NotDecoded(`more than ${DEEPEST} levels deep`);
  const special = specialTree(of, registry, depth);
  if (special !== null) return special;
  const children: Child[] = of.fields.filter((field) => of.isSet(field)).map((field): Child => {
    const under = (value: unknown, desc: { scalar?: ScalarType | undefined; enum?: DescEnum | undefined; message?: DescMessage | undefined }): Tree =>
      desc.message ? messageTree(value as ReflectMessage, registry, depth + 1) : desc.enum ? enumLeaf(value as number, desc.enum) : scalarLeaf(value);
    const key = field.name;
    if (field.fieldKind === 'list') return { key, value: { kind: 'list', children: [...of.get(field)].map((each) => ({ key: null, value: under(each, field) })) } };
    if (field.fieldKind === 'map') {
      return { key, value: { kind: 'map', children: [...of.get(field)].map(([name, each]) => ({ key: scalarLeaf(name).text, value: under(each, field) })) } };
    }
    return { key, value: under(of.get(field), field) };
  });
  for (const { no, data } of of.getUnknown() ?? []) children.push({ key: `unknown field ${no}`, value: bytesLeaf(data) });
  return { kind: 'map', children };
}

/** A Timestamp or an Any in a readable form, in place of its fields; null for other types. */
function specialTree({ desc, message }: ReflectMessage, registry: FileRegistry, depth: number): Tree | null {
  if (desc.typeName === 'google.protobuf.Any') return anyTree(message as Any, registry, depth);
  if (desc.typeName !== 'google.protobuf.Timestamp') return null;
  const { seconds, nanos } = message as Timestamp;
  return instantLeaf(seconds, nanos);
}

function anyTree({ typeUrl, value }: Any, registry: FileRegistry, depth: number): Tree {
  const desc = registry.getMessage(typeUrl.slice(typeUrl.lastIndexOf('/') + 1));
  const inner = desc === undefined ? bytesLeaf(value) : messageTree(reflect(desc, fromBinary(desc, value)), registry, depth + 1);
  return { kind: 'map', children: [{ key: '@type', value: scalarLeaf(typeUrl) }, { key: 'value', value: inner }] };
}

function enumLeaf(value: number, desc: DescEnum): Tree {
  const known = desc.value[value];
  return known === undefined ? { kind: 'number', text: String(value) } : { kind: 'literal', text: known.name };
}

function scalarLeaf(value: unknown): { kind: 'string' | 'number' | 'literal' | 'bytes'; text: string } {
  if (value instanceof Uint8Array) return bytesLeaf(value);
  if (typeof value === 'string') return { kind: 'string', text: JSON.stringify(value) };
  return { kind: typeof value === 'boolean' ? 'literal' : 'number', text: String(value) };
}
