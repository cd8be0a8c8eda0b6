/** The codec of RFC 6455: its own examples, pieces of any size, and what breaks the protocol. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FrameError, Opcode, Reader, closeCode, closing, encode } from "../src/transport/frames.js";

const text = (payload: Uint8Array) => new TextDecoder().decode(payload);
const bytes = (...parts: Array<number | Uint8Array>) =>
  Uint8Array.from(parts.flatMap((part) => (typeof part === "number" ? [part] : [...part])));
const hello = new TextEncoder().encode("Hello");

function all(...chunks: Uint8Array[]) {
  const reader = new Reader();
  return chunks.flatMap((chunk) => [...reader.read(chunk)]);
}

test("the examples of 5.7 are understood and said", () => {
  assert.deepEqual(
    encode(Opcode.Text, hello, bytes(0x37, 0xfa, 0x21, 0x3d)),
    bytes(0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58),
  );
  const [whole] = all(bytes(0x81, 5, hello));
  assert.equal(text(whole!.payload), "Hello");
  const [joined] = all(bytes(0x01, 3, hello.subarray(0, 3), 0x80, 2, hello.subarray(3)));
  assert.equal(text(joined!.payload), "Hello");
  const [ping] = all(bytes(0x89, 5, hello));
  assert.equal(ping!.opcode, Opcode.Ping);
  for (const length of [256, 65536]) {
    const payload = new Uint8Array(length).fill(7);
    const head = encode(Opcode.Binary, payload, bytes(0, 0, 0, 0));
    // The same frame as the daemon would send it: not masked.
    const masked = head.length - length - 4;
    const frame = bytes(head.subarray(0, masked), payload);
    frame[1]! &= 0x7f;
    assert.equal(all(frame)[0]!.payload.length, length);
  }
});

test("pieces of any size make the same messages, control frames in between", () => {
  const stream = bytes(0x01, 2, hello.subarray(0, 2), 0x8a, 0, 0x80, 3, hello.subarray(2), 0x81, 5, hello);
  for (let size = 1; size <= stream.length; size += 1) {
    const chunks = [];
    for (let at = 0; at < stream.length; at += size) chunks.push(stream.subarray(at, at + size));
    const said = all(...chunks).map((it) => [it.opcode, text(it.payload)]);
    assert.deepEqual(said, [
      [Opcode.Pong, ""],
      [Opcode.Text, "Hello"],
      [Opcode.Text, "Hello"],
    ]);
  }
});

test("what breaks the protocol is said with the right code", () => {
  const faults: Array<[string, number, Uint8Array]> = [
    ["a reserved bit", 1002, bytes(0xc1, 0)],
    ["a masked frame", 1002, bytes(0x81, 0x80)],
    ["a long ping", 1002, bytes(0x89, 126, 0, 126)],
    ["a ping in pieces", 1002, bytes(0x09, 0)],
    ["the rest of nothing", 1002, bytes(0x80, 0)],
    ["a message within another", 1002, bytes(0x01, 0, 0x01, 0)],
    ["an unknown opcode", 1002, bytes(0x83, 0)],
    ["a claim of 2^63 bytes", 1009, bytes(0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)],
    ["a claim of 1 GB", 1009, bytes(0x82, 127, 0, 0, 0, 0, 0x40, 0, 0, 0)],
  ];
  for (const [what, code, stream] of faults) {
    const fault = (error: unknown) => error instanceof FrameError && error.code === code;
    assert.throws(() => all(stream), fault, what);
  }
  assert.equal(closeCode(closing(4010, "superseded")), 4010);
  assert.equal(closeCode(new Uint8Array()), undefined);
  assert.throws(() => closeCode(bytes(3)), FrameError);
});
