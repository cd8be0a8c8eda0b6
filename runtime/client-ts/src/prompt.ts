/** What becomes of one prompt, up to its end. */

import type { Heard } from "./connection.js";
import type { Ask, MessageId, MessageState, Prompted, SavedMessage } from "./types.js";

/** A piece of what becomes of a prompt. */
export type Piece =
  /** A piece of the agent's answer. */
  | { kind: "output"; text: string }
  /** The agent asks a person. */
  | { kind: "asked"; ask: Ask }
  /** It does not ask any more. */
  | { kind: "settled"; id: string }
  /** Pieces are missing here; the answer at the end is whole. */
  | { kind: "missed" }
  /** The end. */
  | { kind: "ended"; prompted: Prompted };

const FINAL: ReadonlySet<MessageState> = new Set([
  "answered",
  "failed",
  "unknown",
  "cancelled",
  "parked",
]);

export class PromptStream implements AsyncIterable<Piece> {
  readonly #events: AsyncIterableIterator<Heard>;
  readonly #look: (id: MessageId) => Promise<SavedMessage>;
  #prompted: Prompted;

  /** Made by `Connection.promptStream`. */
  constructor(
    prompted: Prompted,
    events: AsyncIterableIterator<Heard>,
    look: (id: MessageId) => Promise<SavedMessage>,
  ) {
    this.#prompted = prompted;
    this.#events = events;
    this.#look = look;
  }

  /** The message's number. */
  get message(): MessageId {
    return this.#prompted.message;
  }

  /** Reads to the end, which is the answer. */
  async answer(): Promise<Prompted> {
    for await (const piece of this) if (piece.kind === "ended") return piece.prompted;
    return this.#prompted;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Piece> {
    try {
      if (this.#isOver()) return yield this.#ended();
      for await (const heard of this.#events) {
        if (heard.kind === "gap" || heard.kind === "missed") {
          // The end may be among what is missing.
          const { state, answer } = await this.#look(this.message);
          this.#settle(state, answer);
          if (!this.#isOver()) yield { kind: "missed" };
        } else if (heard.kind === "event") {
          const piece = this.#piece(heard.note.event);
          if (piece) yield piece;
        }
        if (this.#isOver()) return yield this.#ended();
      }
    } finally {
      await this.#events.return?.();
    }
  }

  #isOver(): boolean {
    return FINAL.has(this.#prompted.state);
  }

  #ended(): Piece {
    return { kind: "ended", prompted: this.#prompted };
  }

  #settle(state: MessageState, answer: string): void {
    this.#prompted = { ...this.#prompted, state, answer };
  }

  #piece(event: Extract<Heard, { kind: "event" }>["note"]["event"]): Piece | undefined {
    switch (event.event) {
      case "output":
        return event.message === this.message ? { kind: "output", text: event.text } : undefined;
      case "asked":
        return { kind: "asked", ask: event.ask };
      case "settled":
        return { kind: "settled", id: event.id };
      case "message_changed":
        if (event.message === this.message) this.#settle(event.state, event.text);
        return undefined;
      default:
        return undefined;
    }
  }
}
