/** How bytes reach the daemon: over a Unix socket or TCP from Node, over TCP from a browser. */

/** Where the daemon is. */
export type Place =
  | {
      /** Its Unix socket. Only from Node. */
      socketPath: string;
      /** The token of a session, whose tasks and holds are reached with it and nothing else. */
      token?: string;
    }
  | {
      /** `http://127.0.0.1:7077`. */
      url: string;
      /** What the file `token` of the state folder holds. */
      token: string;
    };

/** A request; its body is JSON. */
export interface Request {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  readonly signal: AbortSignal;
}

/** An answer whose body is still to come. */
export interface Reply {
  readonly status: number;
  readonly body: AsyncIterable<Uint8Array>;
}

/** One end of a WebSocket. */
export interface Line {
  /** Sends a text message. A line that is over takes it in silence: its end was told. */
  send(text: string): void;
  /** Closes in good order; a side that does not answer within 5 s is left. */
  close(): void;
}

/** What is heard on a line. */
export interface Ear {
  message(text: string): void;
  /** Any sign of life. */
  pulse(): void;
  /** The last thing, once. `code`: what the other side gave as its reason. */
  closed(code: number | undefined): void;
}

/** The handshake was answered, and with no. */
export class HandshakeError extends Error {
  constructor(readonly status: number) {
    super(`the daemon answered the handshake with status ${status}`);
  }
}

export interface Transport {
  /** For people. */
  readonly name: string;
  request(request: Request): Promise<Reply>;
  /** Opens a WebSocket. */
  dial(path: string, ear: Ear, signal: AbortSignal): Promise<Line>;
  /** A token that has to be said in `hello`. */
  readonly helloToken: string | undefined;
}

/** 64 MiB in one message: an answer of 32 MiB with escapes. */
export const MESSAGE_BYTES_MAX = 64 << 20;
