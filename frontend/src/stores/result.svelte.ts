import * as api from '../api/client';
import type { ResultRows } from '../api/client';
import type { Result, ResultGroup } from '../api/types';

export type Question = ResultRows & { sort?: string; offset: number };

/** A page of a run's result, filtered and sorted by the platform. The shown rows stay until the answer arrives. */
export class ResultStore {
  result = $state.raw<Result | null>(null);
  /** Index of the first row of the shown page. */
  offset = $state(0);
  groups = $state.raw<ResultGroup[]>([]);
  error = $state('');
  #asked = 0;

  constructor(
    readonly id: number,
    readonly pageRows = 500,
  ) {}

  async show(question: Question): Promise<void> {
    const turn = ++this.#asked; // outdated answers are not shown
    try {
      const result = await api.result(this.id, { ...question, limit: this.pageRows });
      if (turn !== this.#asked) return;
      const first = this.result === null;
      [this.result, this.offset, this.error] = [result, question.offset, ''];
      if (first && result.columns.some(({ name }) => name === 'channel')) this.groups = await api.resultGroups(this.id);
    } catch (error) {
      if (turn !== this.#asked) return;
      const { sort, ...unsorted } = question;
      // An address may name a column that this result does not have: it is ignored.
      if (sort !== undefined && this.result === null && error instanceof api.ApiError && error.status === 422) await this.show(unsorted);
      else this.error = api.messageOf(error);
    }
  }
}
