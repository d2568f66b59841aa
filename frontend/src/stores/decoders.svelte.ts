import { descriptorsOf, messageOf, messageTypes } from '../api/client';
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

  constructor(topic: string) {
    this.#topic = topic;
  }

  async load(): Promise<void> {
    try {
      this.types = await messageTypes();
      // Of several, the one whose pattern is most specific is tried first.
      const ours = this.types.filter((type) => globMatches(type.topic_pattern, this.#topic)).sort((a, b) => b.topic_pattern.length - a.topic_pattern.length);
      this.list = withTypes(await Promise.all(ours.map(decoderOf)));
      this.fault = '';
    } catch (error) {
      this.fault = messageOf(error);
    }
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
