import { loaded, type Loaded } from '../api/loaded';
import { Newest } from '../api/newest';

/** What a page requests again and again. If a later request fails, the last answer stays, and `fault` has the reason. */
export class Reading<T> {
  found = $state.raw<Loaded<T>>({ status: 'loading' });
  fault = $state('');
  readonly #newest = new Newest();

  /** Use the answer to a request, or its failure, unless another request has begun meanwhile. */
  async read(request: Promise<T>, use: (answer: T) => T = (answer) => answer): Promise<void> {
    await this.#newest.take(loaded(request), (found) => {
      if (found.status === 'ready') this.found = { status: 'ready', value: use(found.value) };
      else if (this.found.status !== 'ready') this.found = found;
      this.fault = found.status === 'failed' && this.found.status === 'ready' ? found.message : '';
    });
  }

  /** The last answer; null before there is one. */
  get value(): T | null {
    return this.found.status === 'ready' ? this.found.value : null;
  }

  /** Change the last answer, if there is one. */
  change(to: (value: T) => T): void {
    if (this.found.status === 'ready') this.found = { status: 'ready', value: to(this.found.value) };
  }

  /** Use a value that is newer than the answers to requests that are pending. */
  take(value: T): void {
    this.#newest.drop();
    this.found = { status: 'ready', value };
    this.fault = '';
  }
}
