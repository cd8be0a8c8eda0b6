/** One socket to a session: connected, greeted, subscribed; and what its end means. */

import { ClosedError, type DropReason, type DrowseError, TransportError, failed } from "./errors.js";
import { HandshakeError, type Line, type Transport } from "./transport/transport.js";
import type { Failure, Hello, Method, Notification, Position, Welcome } from "./wire.js";

/** 5 s to connect, and for each answer that makes a connection: the daemon is on this machine. */
const CONNECT_MS = 5_000;

/** Why nobody is at the other end. `again`: somebody may be, in a moment. */
export class NoLine extends Error {
  constructor(
    readonly error: DrowseError,
    readonly again: boolean,
    /** The daemon is there and does not let us in yet. */
    readonly busy = false,
  ) {
    super(error.message);
  }
}

/** An answer to a call. */
export interface Answered {
  readonly id: number | string;
  readonly result?: unknown;
  readonly error?: { readonly data: Failure };
}

/** What is heard on a socket. */
export interface Hears {
  answered(answer: Answered): void;
  told(note: Notification): void;
  pulse(): void;
  /** `undefined`: it vanished, or gave no reason. */
  closed(code: number | undefined): void;
}

/** The ids of our own calls; those of callers are numbers above 0. */
const HELLO = "hello";
const SUBSCRIBE = "subscribe";
const PING = "ping";

export class Socket {
  #line: Line | undefined;
  readonly #path: string;
  #hears: Hears | undefined;
  /** Who waits for an answer to one of our own calls. */
  readonly #own = new Map<string, (answer: Answered | undefined) => void>();
  #code: number | undefined;
  #over = false;

  private constructor(path: string) {
    this.#path = path;
  }

  /** Connects, says hello and, unless events are not wanted, has them sent from `after` on. */
  static async dial(
    transport: Transport,
    path: string,
    hello: Hello,
    events: { after: Position | undefined } | undefined,
    hears: Hears,
  ): Promise<{ socket: Socket; welcome: Welcome }> {
    const socket = new Socket(path);
    socket.#hears = hears;
    await socket.#connect(transport);
    try {
      const token = transport.helloToken;
      const said = token === undefined ? hello : { ...hello, token };
      const welcome = (await socket.#ask(HELLO, "hello", said)) as Welcome;
      if (events) {
        await socket.#ask(SUBSCRIBE, "subscribe", events.after ? { after: events.after } : {});
      }
      return { socket, welcome };
    } catch (error) {
      socket.leave();
      throw error;
    }
  }

  call(id: number, method: Method, params: object): void {
    this.#line?.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
  }

  /** Asks whether anybody is there. */
  ping(): void {
    this.#line?.send(JSON.stringify({ jsonrpc: "2.0", id: PING, method: "ping" }));
  }

  /** Says goodbye. Nothing more is heard. */
  leave(): void {
    this.#hears = undefined;
    this.#line?.close();
  }

  async #connect(transport: Transport): Promise<void> {
    const ear = {
      message: (text: string) => this.#message(text),
      pulse: () => this.#hears?.pulse(),
      closed: (code: number | undefined) => this.#closed(code),
    };
    try {
      this.#line = await transport.dial(this.#path, ear, AbortSignal.timeout(CONNECT_MS));
    } catch (cause) {
      if (cause instanceof HandshakeError && cause.status < 500) {
        const code = cause.status === 401 ? "unauthorized" : "forbidden";
        throw new NoLine(new ClosedError(code, cause.message), false);
      }
      const busy = cause instanceof HandshakeError;
      const detail = `no connection through ${transport.name}`;
      throw new NoLine(new TransportError(detail, false, cause), true, busy);
    }
  }

  async #ask(id: string, method: Method, params: object): Promise<unknown> {
    const answer = await new Promise<Answered | undefined>((resolve) => {
      if (this.#over) return resolve(undefined);
      const timer = setTimeout(() => resolve(undefined), CONNECT_MS);
      this.#own.set(id, (said) => {
        clearTimeout(timer);
        resolve(said);
      });
      this.#line?.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
    this.#own.delete(id);
    if (!answer) throw this.#unwelcome();
    if (answer.error) throw rejected(answer.error.data);
    return answer.result;
  }

  #unwelcome(): NoLine {
    const closed = closedBy(this.#code);
    if (closed) return new NoLine(closed, false);
    const detail = "the connection ended before it was welcomed";
    return new NoLine(new TransportError(detail, false), true, this.#code === DRAINING);
  }

  #message(text: string): void {
    let message: Partial<Answered> & Partial<Notification>;
    try {
      message = JSON.parse(text) as typeof message;
    } catch {
      // Not of the daemon: whatever it is, it cannot be spoken with.
      this.#line?.close();
      return;
    }
    if (message.id === undefined) {
      // What a newer daemon says unasked is passed over by whoever listens.
      this.#hears?.told(message as Notification);
    } else if (typeof message.id === "number") {
      this.#hears?.answered(message as Answered);
    } else {
      this.#own.get(String(message.id))?.(message as Answered);
    }
  }

  #closed(code: number | undefined): void {
    this.#over = true;
    this.#code = code;
    for (const waits of this.#own.values()) waits(undefined);
    this.#hears?.closed(code);
  }
}

/** A hello was not granted. */
function rejected(failure: Failure): NoLine {
  const error =
    failure.code === "resume_refused"
      ? new ClosedError("connection_closed", failure.detail, failure.drop_reason ?? "resume_refused")
      : failed(failure);
  return new NoLine(error, failure.retryable, true);
}

/** See docs/protocol.md, Close codes. */
const DRAINING = 4012;

/** What a close frame of the daemon means; none: the connection can be taken up again. */
export function closedBy(code: number | undefined): ClosedError | undefined {
  const detail = "the daemon closed the connection";
  switch (code) {
    case 4001:
      return new ClosedError("unauthorized", detail);
    case 4003:
      return new ClosedError("forbidden", detail);
    case 4004:
      return new ClosedError("no_such_session", detail);
    case 4008:
      return new ClosedError("idle_timeout", detail);
    case 4009:
      return new ClosedError("hard_timeout", detail);
    case 4010:
      return new ClosedError("connection_closed", "another client took the place", "superseded");
    case 1002:
    case 1003:
    case 1009: {
      const unread = "the daemon could not read what was sent";
      return new ClosedError("connection_closed", unread, "proxy_error");
    }
    default:
      return undefined;
  }
}

/** Why a connection broke that can be taken up again. */
export function brokenBy(code: number | undefined): DropReason {
  return code === DRAINING ? "proxy_restart" : "transport_lost";
}
