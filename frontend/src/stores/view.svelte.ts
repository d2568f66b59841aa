/**
 * Search, order and filters of a page's table, stored in the address: a link shows the same, the back button undoes it.
 */
import { parseSort, sortText } from '../tables/sort';
import type { Sort } from '../tables/table';

/** The part of the router that a view needs; tests pass their own. */
export type Address = {
  readonly search: URLSearchParams;
  set(changes: Readonly<Record<string, string | null>>, options?: { push?: boolean }): void;
};

/** `prefix` distinguishes several tables of one page. */
export class TableView {
  readonly #address: Address;
  readonly #prefix: string;
  readonly #usual: Sort | null;

  constructor(address: Address, { sort = null, prefix = '' }: { sort?: Sort | null; prefix?: string } = {}) {
    this.#address = address;
    this.#prefix = prefix;
    this.#usual = sort;
  }

  get query(): string {
    return this.#get('q') ?? '';
  }

  set query(text: string) {
    this.#set('q', text === '' ? null : text);
  }

  /** An unknown column is ignored; the table then keeps the given order. */
  get sort(): Sort | null {
    const text = this.#get('sort');
    return (text === null ? null : parseSort(text)) ?? this.#usual;
  }

  set sort(sort: Sort | null) {
    const text = sort && sortText(sort);
    this.#set('sort', text === (this.#usual && sortText(this.#usual)) ? null : text);
  }

  get filters(): ReadonlySet<string> {
    return new Set((this.#get('filter') ?? '').split(',').filter((name) => name !== ''));
  }

  /** Whether rows may be hidden. */
  get narrowed(): boolean {
    return this.query !== '' || this.filters.size > 0;
  }

  toggle(filter: string): void {
    const filters = new Set(this.filters);
    if (!filters.delete(filter)) filters.add(filter);
    this.#set('filter', filters.size === 0 ? null : [...filters].join(','), true);
  }

  /** Remove search and filters. */
  clear(): void {
    this.#address.set({ [this.#prefix + 'q']: null, [this.#prefix + 'filter']: null }, { push: true });
  }

  #get(name: string): string | null {
    return this.#address.search.get(this.#prefix + name);
  }

  #set(name: string, value: string | null, push = false): void {
    this.#address.set({ [this.#prefix + name]: value }, { push });
  }
}
