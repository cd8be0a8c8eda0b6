/** A queue for one reader who may be slow: bounded, and nobody waits for it. */

/** 4,096 things are kept for a slow reader, as many as the daemon keeps. */
const THINGS_MAX = 4096;

export class Queue<T> implements AsyncIterableIterator<T> {
  readonly #things: T[] = [];
  readonly #missed: (count: number) => T;
  readonly #left: () => void;
  #lost = 0;
  #end: { error: Error | undefined } | undefined;
  #reader: (() => void) | undefined;

  /** `missed` says how many things a reader was too slow for; `left` is told that nobody reads. */
  constructor(missed: (count: number) => T, left: () => void) {
    this.#missed = missed;
    this.#left = left;
  }

  push(thing: T): void {
    if (this.#end) return;
    if (this.#things.length >= THINGS_MAX) {
      this.#things.shift();
      this.#lost += 1;
    }
    this.#things.push(thing);
    this.#wake();
  }

  /** Nothing more comes; what is kept is still read. */
  end(error?: Error): void {
    this.#end ??= { error };
    this.#wake();
  }

  async next(): Promise<IteratorResult<T>> {
    for (;;) {
      if (this.#lost > 0) {
        const value = this.#missed(this.#lost);
        this.#lost = 0;
        return { done: false, value };
      }
      const value = this.#things.shift();
      if (value !== undefined) return { done: false, value };
      if (this.#end?.error) throw this.#end.error;
      if (this.#end) return { done: true, value: undefined };
      await new Promise<void>((resolve) => {
        this.#reader = resolve;
      });
    }
  }

  async return(): Promise<IteratorResult<T>> {
    this.end();
    this.#things.length = 0;
    this.#left();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #wake(): void {
    const reader = this.#reader;
    this.#reader = undefined;
    reader?.();
  }
}
