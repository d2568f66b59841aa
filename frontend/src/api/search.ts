/** The lines of a search's answer, each the JSON of a message. */
import { reader } from './message';
import type { SearchMessage } from './types';

/** A message; null for one of an unknown type or an incomplete one. */
export const readLine = reader<SearchMessage>({
  message: ({ message }) => typeof message === 'object' && message !== null,
  progress: ({ searched, total }) => typeof searched === 'number' && typeof total === 'number',
  end: ({ searched, total, nodes }) => typeof searched === 'number' && typeof total === 'number' && Array.isArray(nodes),
});

/** The lines of a stream that are not empty, as they arrive. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const pieces = stream.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { done, value } = await pieces.read();
    const lines = (rest + decoder.decode(value, { stream: !done })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines.filter((line) => line !== '');
    if (done) return;
  }
}
