/** The frames of RFC 6455, as far as a client needs them. */

import { MESSAGE_BYTES_MAX } from "./transport.js";

export const enum Opcode {
  Continuation = 0x0,
  Text = 0x1,
  Binary = 0x2,
  Close = 0x8,
  Ping = 0x9,
  Pong = 0xa,
}

/** The other side broke the protocol; `code` is what a close frame says of it. */
export class FrameError extends Error {
  constructor(
    readonly code: 1002 | 1007 | 1009,
    detail: string,
  ) {
    super(detail);
  }
}

/** A whole message, fragments put together. */
export interface Message {
  readonly opcode: Opcode;
  readonly payload: Uint8Array;
}

/** One final frame. `mask` is four random bytes: a client has to mask (5.3). */
export function encode(opcode: Opcode, payload: Uint8Array, mask: Uint8Array): Uint8Array {
  const { length } = payload;
  const extended = length < 126 ? 0 : length < 65536 ? 2 : 8;
  const frame = new Uint8Array(2 + extended + 4 + length);
  const view = new DataView(frame.buffer);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (extended === 0 ? length : extended === 2 ? 126 : 127);
  if (extended === 2) view.setUint16(2, length);
  if (extended === 8) view.setBigUint64(2, BigInt(length));
  const start = 2 + extended + 4;
  frame.set(mask, start - 4);
  for (let at = 0; at < length; at += 1) {
    frame[start + at] = payload[at]! ^ mask[at & 3]!;
  }
  return frame;
}

/** The payload of a close frame. */
export function closing(code: number, reason: string): Uint8Array {
  const text = new TextEncoder().encode(reason);
  const payload = new Uint8Array(2 + text.length);
  new DataView(payload.buffer).setUint16(0, code);
  payload.set(text, 2);
  return payload;
}

/** The code in a close frame's payload; none when there is none. */
export function closeCode(payload: Uint8Array): number | undefined {
  if (payload.length === 0) return undefined;
  if (payload.length === 1) throw new FrameError(1002, "half a close code");
  return new DataView(payload.buffer, payload.byteOffset).getUint16(0);
}

/** Puts messages together from whatever pieces the bytes come in. Holds one message at most. */
export class Reader {
  #chunks: Uint8Array[] = [];
  #held = 0;
  #parts: Uint8Array[] = [];
  #size = 0;
  #opcode: Opcode | undefined;

  /** What these bytes complete. Throws {@link FrameError}; nothing more can be read then. */
  *read(chunk: Uint8Array): Generator<Message> {
    this.#chunks.push(chunk);
    this.#held += chunk.length;
    for (;;) {
      const frame = this.#frame();
      if (!frame) return;
      const message = this.#message(frame);
      if (message) yield message;
    }
  }

  #frame(): { final: boolean; opcode: Opcode; payload: Uint8Array } | undefined {
    if (this.#held < 2) return undefined;
    const head = this.#peek(Math.min(this.#held, 10));
    const [first, second] = [head[0]!, head[1]!];
    if (first & 0x70) throw new FrameError(1002, "a reserved bit is set");
    if (second & 0x80) throw new FrameError(1002, "the daemon masks its frames");
    const [opcode, final] = [(first & 0x0f) as Opcode, (first & 0x80) !== 0];
    let length = second & 0x7f;
    let start = 2;
    if (length === 126 || length === 127) {
      start = length === 126 ? 4 : 10;
      if (head.length < start) return undefined;
      const view = new DataView(head.buffer, head.byteOffset);
      const long = start === 4 ? BigInt(view.getUint16(2)) : view.getBigUint64(2);
      if (long > BigInt(MESSAGE_BYTES_MAX)) throw new FrameError(1009, `a frame of ${long} bytes`);
      length = Number(long);
    }
    if (opcode >= 0x8 && (!final || length > 125)) {
      throw new FrameError(1002, "a control frame that is long, or in pieces");
    }
    if (this.#held < start + length) return undefined;
    const payload = this.#take(start + length).subarray(start);
    return { final, opcode, payload };
  }

  #message(frame: { final: boolean; opcode: Opcode; payload: Uint8Array }): Message | undefined {
    const { final, opcode, payload } = frame;
    switch (opcode) {
      case Opcode.Close:
      case Opcode.Ping:
      case Opcode.Pong:
        return { opcode, payload };
      case Opcode.Text:
      case Opcode.Binary:
        if (this.#opcode !== undefined) throw new FrameError(1002, "a message within another");
        this.#opcode = opcode;
        break;
      case Opcode.Continuation:
        if (this.#opcode === undefined) throw new FrameError(1002, "the rest of no message");
        break;
      default:
        throw new FrameError(1002, `opcode ${String(opcode)}`);
    }
    this.#size += payload.length;
    if (this.#size > MESSAGE_BYTES_MAX) throw new FrameError(1009, "a message without end");
    this.#parts.push(payload);
    if (!final) return undefined;
    const whole = { opcode: this.#opcode, payload: joined(this.#parts, this.#size) };
    [this.#parts, this.#size, this.#opcode] = [[], 0, undefined];
    return whole;
  }

  #peek(length: number): Uint8Array {
    const first = this.#chunks[0]!;
    if (first.length >= length) return first.subarray(0, length);
    this.#chunks = [joined(this.#chunks, this.#held)];
    return this.#chunks[0]!.subarray(0, length);
  }

  #take(length: number): Uint8Array {
    const bytes = this.#peek(length);
    const rest = this.#chunks[0]!.subarray(length);
    if (rest.length > 0) this.#chunks[0] = rest;
    else this.#chunks.shift();
    this.#held -= length;
    return bytes;
  }
}

function joined(parts: readonly Uint8Array[], length: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
