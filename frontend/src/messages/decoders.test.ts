import { create, fromJson, toBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { encode } from '@msgpack/msgpack';
import { describe, expect, it } from 'vitest';
import { beginning, BUILT_IN, protobufDecoder, shown, withTypes } from './decoders';
import { protobufReader } from './protobuf';
import { isBranch, isSmall, type Tree } from './tree';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** The tree as one line. */
function line(tree: Tree): string {
  if (!isBranch(tree)) return tree.text;
  const inner = tree.children.map(({ key, value }) => (key === null ? line(value) : `${key}: ${line(value)}`)).join(', ');
  return tree.kind === 'map' ? `{${inner}}` : `[${inner}]`;
}
function read(body: Uint8Array, as = 'auto', decoders = BUILT_IN, truncated = false): [string, string, string] {
  const { key, decoded, fault } = shown(body, as, decoders, truncated);
  return [key, 'tree' in decoded ? line(decoded.tree) : decoded.text, fault];
}

describe('the detected format', () => {
  it('is that of the contents', () => {
    expect(read(bytes('{"a":[1]}'))).toEqual(['json', '{"a": [1]}', '']);
    expect(read(bytes('hello'))).toEqual(['text', 'hello', '']);
    expect(read(bytes('{"a":'))).toEqual(['text', '{"a":', '']);
    expect(read(encode({ a: [1] }))).toEqual(['msgpack', '{"a": [1]}', '']);
    expect(read(Uint8Array.of(0, 255))[0]).toBe('hex');
  });
  it('of a truncated body is text or hex', () => {
    expect(read(bytes('{"a":1}'), 'auto', BUILT_IN, true)[0]).toBe('text');
    expect(read(encode({ a: 1 }), 'auto', BUILT_IN, true)[0]).toBe('hex');
  });
});

describe('a chosen format that does not fit', () => {
  it('says why, and the body is text or hex', () => {
    expect(read(bytes('{"a":'), 'json')).toEqual(['text', '{"a":', expect.stringContaining('Not shown as JSON') as string]);
    expect(read(Uint8Array.of(0xc1), 'msgpack')).toEqual(['hex', expect.stringContaining('c1') as string, expect.stringContaining('MessagePack') as string]);
    expect(read(Uint8Array.of(255), 'text')[2]).toBe('Not shown as text: these bytes are not UTF-8 text.');
    expect(read(bytes('{"a":1}'), 'json', BUILT_IN, true)[2]).toContain('only the beginning');
    expect(read(bytes('['.repeat(1000) + ']'.repeat(1000)), 'json')[2]).toContain('levels deep');
  });
});

it('JSON keeps its numbers, texts and duplicate keys as they were sent', () => {
  const sent = '{"id":12345678901234567890,"at":1.0,"of":{},"text":"a\\"{b\\\\","id":[1e3,{"x":null}]}';
  expect(read(bytes(sent))[1]).toBe('{"id": 12345678901234567890, "at": 1.0, "of": {}, "text": "a\\"{b\\\\", "id": [1e3, {"x": null}]}');
});

it('MessagePack keeps 64-bit integers, the order of its keys, bytes and nanoseconds', () => {
  const wide = Uint8Array.of(0x82, 0x02, 0xcf, ...Array<number>(8).fill(255), 0x01, 0xc4, 2, 1, 255);
  expect(read(wide)).toEqual(['msgpack', '{2: 18446744073709551615, 1: bytes 01 ff}', '']);
  const instant = Uint8Array.of(0x91, 0xd7, 0xff, 0, 0, 0, 4, 0, 0, 0, 1);
  expect(read(instant)[1]).toBe('[1970-01-01T00:00:01.000000001Z]');
});

describe('Protocol Buffers', () => {
  const file = fromJson(FileDescriptorProtoSchema, {
    name: 'order.proto',
    package: 'shop.v1',
    syntax: 'proto3',
    messageType: [
      {
        name: 'Order',
        field: [
          { name: 'id', number: 1, type: 'TYPE_UINT64', label: 'LABEL_OPTIONAL' },
          { name: 'tags', number: 2, type: 'TYPE_STRING', label: 'LABEL_REPEATED' },
          { name: 'parent', number: 3, type: 'TYPE_MESSAGE', typeName: '.shop.v1.Order', label: 'LABEL_OPTIONAL' },
        ],
      },
    ],
  });
  const set = toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file: [file] }));
  const decoders = withTypes([protobufDecoder(1, 'shop.v1.Order', protobufReader(set, 'shop.v1.Order'))]);
  const body = Uint8Array.of(0x08, ...Array<number>(9).fill(255), 1, 0x12, 1, 0x61, 0x1a, 2, 0x08, 7);

  it('are decoded by the descriptors, with 64-bit integers as they were sent', () => {
    expect(read(body, 'auto', decoders)).toEqual(['protobuf-1', '{id: 18446744073709551615, tags: ["a"], parent: {id: 7}}', '']);
  });
  it('of another type are not detected, and show unknown fields when chosen', () => {
    const other = Uint8Array.of(0x08, 1, 0x4a, 1, 0x62);
    expect(read(other, 'auto', decoders)[0]).not.toBe('protobuf-1');
    expect(read(other, 'protobuf-1', decoders)[1]).toContain('unknown field 9: bytes');
    expect(read(body.subarray(0, 5), 'protobuf-1', decoders)[2]).toContain('Not shown as Protocol Buffers: shop.v1.Order');
    expect(read(bytes('{"a":1}'), 'auto', decoders)[0]).toBe('json');
  });
  it('need descriptors that have the type', () => {
    expect(() => protobufReader(set, 'shop.v1.Basket')).toThrow('no message type shop.v1.Basket');
    expect(() => protobufReader(bytes('message'), 'Order')).toThrow();
  });
});

it('a tree is small up to a number of values', () => {
  const tree: Tree = { kind: 'list', children: [1, 2].map((each) => ({ key: null, value: { kind: 'number', text: String(each) } })) };
  expect([isSmall(tree, 3), isSmall(tree, 2)]).toEqual([true, false]);
});

it('the beginning of a body is one line', () => {
  expect(beginning(bytes('{\n  "a": 1\n}'))).toBe('{ "a": 1 }');
  expect(beginning(Uint8Array.of(0, 255))).toBe('00 ff');
});

it('a map whose key is a map in a map is refused before its text doubles', () => {
  const depth = 26;
  const nested = Uint8Array.from([...Array<number>(depth).fill(0x81), 0xc0, ...Array<number>(depth).fill(0xc0)]);
  expect(read(nested, 'msgpack')).toEqual(['hex', expect.any(String) as string, expect.stringContaining('as a key has more than 1000 characters') as string]);
  expect(read(Uint8Array.of(0x81, 0x91, 0x01, 0x02), 'msgpack')[0]).toBe('msgpack');
});
