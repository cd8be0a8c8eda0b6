/** Node: Unix sockets and TCP, by `node:http` alone. Node 20 has no WebSocket of its own. */

import { createHash, randomBytes } from "node:crypto";
import * as http from "node:http";
import { userInfo } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";

import { FrameError, Opcode, Reader, closeCode, closing, encode } from "./frames.js";
import type { Ear, Line, Place, Reply, Request, Transport } from "./transport.js";
import { HandshakeError } from "./transport.js";

/** RFC 6455, 1.3. */
const HANDSHAKE_SALT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** 5 s for the other side's goodbye. */
const GOODBYE_MS = 5_000;

/** Where `drowse` itself looks: `$DROWSE_SOCKET`, the runtime folder, the folder in /tmp. */
export function defaultPlace(): Place {
  const env = process.env;
  const given = env["DROWSE_SOCKET"];
  const token = env["DROWSE_TOKEN"];
  if (given) return token ? { socketPath: given, token } : { socketPath: given };
  const runtime = env["XDG_RUNTIME_DIR"];
  if (runtime) return { socketPath: join(runtime, "drowse", "drowse.sock") };
  return { socketPath: `/tmp/drowse-${userInfo().uid}/drowse.sock` };
}

export function open(place: Place): Transport {
  const way = wayTo(place);
  const authorization = place.token ? { authorization: `Bearer ${place.token}` } : {};
  return {
    name: "socketPath" in place ? `socket ${place.socketPath}` : place.url,
    // Said in the head of each request.
    helloToken: undefined,
    request: (request) => ask(way, request, authorization),
    dial: (path, ear, signal) => dial(way, path, authorization, ear, signal),
  };
}

type Way = Pick<http.RequestOptions, "socketPath" | "host" | "port">;

function wayTo(place: Place): Way {
  if ("socketPath" in place) return { socketPath: place.socketPath };
  const { protocol, hostname, port } = new URL(place.url);
  if (protocol !== "http:") throw new TypeError(`${place.url} does not begin with http://`);
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port || "80" };
}

function ask(way: Way, request: Request, more: Record<string, string>): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const sent = http.request({
      ...way,
      // A dead connection is never a question when each request has its own.
      agent: false,
      method: request.method,
      path: request.path,
      headers: { ...request.headers, ...more },
      signal: request.signal,
    });
    sent.on("error", reject);
    sent.on("response", (answer) => {
      resolve({ status: answer.statusCode ?? 0, body: answer });
    });
    sent.end(request.body);
  });
}

function dial(
  way: Way,
  path: string,
  more: Record<string, string>,
  ear: Ear,
  signal: AbortSignal,
): Promise<Line> {
  const key = randomBytes(16).toString("base64");
  return new Promise((resolve, reject) => {
    const sent = http.request({
      ...way,
      agent: false,
      path,
      headers: {
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        ...more,
      },
      signal,
    });
    sent.on("error", reject);
    sent.on("response", (answer) => {
      answer.resume();
      reject(new HandshakeError(answer.statusCode ?? 0));
    });
    sent.on("upgrade", (answer, socket, head) => {
      const expected = createHash("sha1").update(key + HANDSHAKE_SALT).digest("base64");
      if (answer.headers["sec-websocket-accept"] !== expected) {
        socket.destroy();
        reject(new Error("the answer to the handshake is not one"));
        return;
      }
      resolve(new NodeLine(socket, head, ear));
    });
    sent.end();
  });
}

class NodeLine implements Line {
  readonly #socket: Duplex;
  readonly #ear: Ear;
  readonly #reader = new Reader();
  readonly #text = new TextDecoder("utf-8", { fatal: true });
  #code: number | undefined;
  #over = false;
  #closing = false;

  constructor(socket: Duplex, head: Uint8Array, ear: Ear) {
    this.#socket = socket;
    this.#ear = ear;
    socket.on("data", (chunk: Uint8Array) => this.#heard(chunk));
    socket.on("error", () => undefined);
    socket.on("end", () => socket.end());
    socket.on("close", () => this.#end());
    if (head.length > 0) this.#heard(head);
  }

  send(text: string): void {
    if (!this.#over && !this.#closing) this.#frame(Opcode.Text, new TextEncoder().encode(text));
  }

  close(): void {
    this.#goodbye(1000, "bye");
  }

  #frame(opcode: Opcode, payload: Uint8Array): void {
    this.#socket.write(encode(opcode, payload, randomBytes(4)));
  }

  #goodbye(code: number, reason: string): void {
    if (this.#over || this.#closing) return;
    this.#closing = true;
    this.#frame(Opcode.Close, closing(code, reason));
    setTimeout(() => this.#socket.destroy(), GOODBYE_MS).unref();
  }

  #heard(chunk: Uint8Array): void {
    if (this.#over) return;
    this.#ear.pulse();
    try {
      for (const { opcode, payload } of this.#reader.read(chunk)) {
        if (opcode === Opcode.Text) this.#ear.message(this.#decoded(payload));
        else if (opcode === Opcode.Ping) this.#frame(Opcode.Pong, payload);
        else if (opcode === Opcode.Close) {
          this.#code = closeCode(payload);
          if (!this.#closing) this.#frame(Opcode.Close, payload.subarray(0, 2));
          this.#closing = true;
          this.#socket.end();
          return;
        }
      }
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#goodbye(error.code, error.message);
      this.#socket.destroy();
    }
  }

  #decoded(payload: Uint8Array): string {
    try {
      return this.#text.decode(payload);
    } catch {
      throw new FrameError(1007, "a message that is not UTF-8");
    }
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#ear.closed(this.#code);
  }
}
