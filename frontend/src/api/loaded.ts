import { messageOf } from './client';

export type Loaded<T> = { status: 'loading' } | { status: 'failed'; message: string } | { status: 'ready'; value: T };

/** The state of a request: pending, answered or failed. */
export async function loaded<T>(request: Promise<T>): Promise<Loaded<T>> {
  try {
    return { status: 'ready', value: await request };
  } catch (error) {
    return { status: 'failed', message: messageOf(error) };
  }
}
