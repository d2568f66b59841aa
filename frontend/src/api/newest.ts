/** Uses only the answer to the newest of several requests: answers may arrive in another order than their requests. */
export class Newest {
  #turn = 0;

  /** Call `use` with the answer, or reject with the failure, unless another request has begun meanwhile. */
  async take<T>(request: Promise<T>, use: (answer: T) => void): Promise<void> {
    const turn = ++this.#turn;
    try {
      const answer = await request;
      if (turn === this.#turn) use(answer);
    } catch (error) {
      if (turn === this.#turn) throw error;
    }
  }

  /** Ignore the answers that have not arrived yet. */
  drop(): void {
    this.#turn += 1;
  }
}
