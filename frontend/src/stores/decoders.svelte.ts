import { descriptorsOf, messageTypes } from '../api/client';
import { loaded, type Loaded } from '../api/loaded';
import { Newest } from '../api/newest';
import type { MessageType } from '../api/types';
import { BUILT_IN, protobufDecoder, withTypes, type Decoder } from '../messages/decoders';
import { NotDecoded } from '../messages/tree';
import { globMatches } from '../patterns/glob';

/** The decoders for the bodies of one topic, and the message types of all topics. */
export class DecoderStore {
  list = $state.raw<readonly Decoder[]>(BUILT_IN);
  types = $state.raw<readonly MessageType[]>([]);
  /** Why the message types could not be read; empty if they could. */
  fault = $state('');
  #topic: string;
  readonly #newest = new Newest();

  constructor(topic: string) {
    this.#topic = topic;
  }

  async load(): Promise<void> {
    await this.#newest.take(loaded(this.#read()), (found) => {
      if (found.status === 'ready') {
        this.types = found.value.types;
        if (found.value.decoders.status === 'ready') this.list = withTypes(found.value.decoders.value);
      }
      const failed = [found, ...(found.status === 'ready' ? [found.value.decoders] : [])].find(({ status }) => status === 'failed');
      this.fault = failed?.status === 'failed' ? failed.message : '';
    });
  }

  async #read(): Promise<{ types: readonly MessageType[]; decoders: Loaded<Decoder[]> }> {
    const types = await messageTypes();
    // Of several, the one whose pattern is most specific is tried first.
    const ours = types.filter((type) => globMatches(type.topic_pattern, this.#topic)).sort((a, b) => b.topic_pattern.length - a.topic_pattern.length);
    return { types, decoders: await loaded(Promise.all(ours.map(decoderOf))) };
  }
}

/** The library is fetched only for topics that have a message type. */
async function decoderOf({ id, name }: MessageType): Promise<Decoder> {
  const [{ protobufReader }, set] = await Promise.all([import('../messages/protobuf'), descriptorsOf(id)]);
  try {
    return protobufDecoder(id, name, protobufReader(set, name));
  } catch (error) {
    if (error instanceof NotDecoded) return protobufDecoder(id, name, error.message);
    throw error;
  }
}
