/**
 * A lasting connection to one session: calls, prompts and events on one WebSocket that is redialled
 * when it breaks. Every call has a deadline, unless it is to have none; nothing is repeated but what
 * only reads; a call is settled once, and events come in order, with what is missing said.
 */

import {
  type Answered,
  type Hears,
  NoLine,
  Socket,
  brokenBy,
  closedBy,
} from "./dial.js";
import {
  ClosedError,
  type DropReason,
  type DrowseError,
  RefusedError,
  UnknownOutcomeError,
  failed,
} from "./errors.js";
import { PromptStream } from "./prompt.js";
import { Queue } from "./queue.js";
import type { Transport } from "./transport/transport.js";
import type {
  Answer,
  EventNote,
  GapNote,
  MessageId,
  Method,
  NewMessage,
  Position,
  Prompted,
  SavedMessage,
  SessionReport,
  SnapshotNote,
  WarningNote,
  Welcome,
} from "./types.js";
import type { Hello, Notification } from "./wire.js";

/** 180 s for a call that names no bound: the daemon's 120 s and a minute for its answer. */
export const REQUEST_TIMEOUT_MS = 180_000;
/** 60 s are added to a bound a call names: the daemon adds 30 s itself. */
const REQUEST_GRACE_MS = 60_000;
/** 65 min at most: the daemon's hour and its answer. */
const REQUEST_TIMEOUT_MAX_MS = 3_900_000;
/** 30 s a broken connection is redialled. */
export const REDIAL_MS = 30_000;
/** 150 s while the daemon answers and cannot let us in yet. */
export const REDIAL_WHILE_BUSY_MS = 150_000;
/** 50 ms before the second try, doubled up to 2 s. */
const PAUSE_MS = 50;
const PAUSE_MAX_MS = 2_000;
/** 15 s of silence before a ping, as on the other side; 45 s are the end of a socket. */
const HEARTBEAT_MS = 15_000;
const SILENCE_MAX_MS = 45_000;
/** 64 calls wait for a connection that is being taken up again. */
const WAITING_MAX = 64;

export interface ConnectOptions {
  /** `drive` gives orders, too; a session has one driver at most. `watch`, unless said. */
  role?: "watch" | "drive";
  /** Takes the place of another driver, if there is one. */
  takeOver?: boolean;
  /** False: a break is the end. `DROWSE_RESUME=0` in the environment says the same and wins. */
  resume?: boolean;
  /** False: no events are sent. */
  events?: boolean;
  /** How long a call without a bound of its own is waited for; the connection is given up then. */
  requestTimeoutMs?: number;
  /** A bound for orders; the connection stays. Never for what can wait for a person. */
  actionTimeoutMs?: number;
  /** Closes the connection when nothing is said or waited for this long. */
  idleTimeoutMs?: number;
  /** Closes the connection this long after its beginning. */
  hardTimeoutMs?: number;
  /** The name by which the daemon's records call this client. */
  client?: string;
}

/** What a call takes. */
export interface CallOptions {
  /** Gives the answer up when it is aborted; what the daemon does goes on. */
  signal?: AbortSignal;
  /** A bound that the call names: the daemon waits 30 s longer. 0: as long as it takes. */
  timeoutMs?: number;
}

/** Something that was told. */
export type Heard =
  | { kind: "event"; note: EventNote }
  /** The daemon has no longer what came in between; a snapshot follows. */
  | { kind: "gap"; note: GapNote }
  /** How the session is, at this place. */
  | { kind: "snapshot"; note: SnapshotNote }
  /** A limit of the connection is near. */
  | { kind: "warning"; note: WarningNote }
  /** The connection broke and was taken up again; what was missed follows. */
  | { kind: "resumed" }
  /** This reader was too slow for so many. */
  | { kind: "missed"; count: number };

/** Methods that change nothing: they are asked once more after an unknown outcome. */
const READS: ReadonlySet<Method> = new Set(["show", "messages", "message"]);
/** Orders, for which `actionTimeoutMs` is. */
const ORDERS: ReadonlySet<Method> = new Set([
  "cancel",
  "retry",
  "record_outcome",
  "interrupt",
  "answer",
  "wake",
  "release",
  "stop",
]);

interface Call {
  readonly id: number;
  readonly method: Method;
  readonly params: object;
  settle(outcome: { result: unknown } | { error: Error }): void;
}

/** `Symbol.asyncDispose`, which older runtimes do not have. */
const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);

export class Connection {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #options: ConnectOptions;
  readonly #resumes: boolean;
  readonly #requestTimeoutMs: number;
  #hello: Hello;
  #welcome!: Welcome;
  #socket: Socket | undefined;
  #after: Position | undefined;
  #closed: ClosedError | undefined;
  #closing: Promise<void> | undefined;
  #next = 1;
  /** Sent, and not answered. */
  readonly #pending = new Map<number, Call>();
  /** Made while the connection was being taken up again. */
  #waiting: Call[] = [];
  readonly #readers = new Set<Queue<Heard>>();
  /** What was told before anybody listened. */
  #first: Queue<Heard> | undefined;
  #heardAt = 0;
  #heartbeat: ReturnType<typeof setInterval> | undefined;

  private constructor(transport: Transport, name: string, path: string, options: ConnectOptions) {
    this.#transport = transport;
    this.#path = path;
    this.#options = options;
    this.#resumes = (options.resume ?? true) && mayResume();
    const wanted = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS;
    this.#requestTimeoutMs = Math.min(wanted, REQUEST_TIMEOUT_MAX_MS);
    this.#hello = {
      version: 1,
      role: options.takeOver ? "drive" : (options.role ?? "watch"),
      client: options.client ?? name,
      take_over: options.takeOver ?? false,
      keep: this.#resumes,
      ...(options.idleTimeoutMs === undefined ? {} : { idle_timeout_ms: options.idleTimeoutMs }),
      ...(options.hardTimeoutMs === undefined ? {} : { hard_timeout_ms: options.hardTimeoutMs }),
    };
  }

  /** Made by `Client.connect`. */
  static async open(
    transport: Transport,
    name: string,
    path: string,
    options: ConnectOptions,
  ): Promise<Connection> {
    const connection = new Connection(transport, name, path, options);
    if (options.events !== false) connection.#first = connection.#listen();
    try {
      await connection.#dial();
    } catch (error) {
      throw error instanceof NoLine ? error.error : error;
    }
    const least = connection.#welcome.bounds.call_ms ?? 0;
    if (connection.#requestTimeoutMs <= least) {
      await connection.close();
      const detail = `requestTimeoutMs: the daemon itself waits ${least / 1000} s`;
      const said = { class: "terminal_request", detail, retryable: false } as const;
      throw new RefusedError(said, "invalid");
    }
    connection.#heartbeat = setInterval(() => connection.#beat(), HEARTBEAT_MS / 3);
    return connection;
  }

  /** What the daemon said to the hello. */
  get welcome(): Welcome {
    return this.#welcome;
  }

  /** True while it stands, false while it is redialled and once it is over. Asks nobody. */
  get isConnected(): boolean {
    return this.#socket !== undefined;
  }

  /** Why it is over. */
  get closed(): ClosedError | undefined {
    return this.#closed;
  }

  /**
   * All that is told from now on; the first time also what was told since the connection began,
   * which begins with a snapshot of the session. Ends by a {@link ClosedError}.
   */
  events(): AsyncIterableIterator<Heard> {
    const first = this.#first;
    this.#first = undefined;
    return first ?? this.#listen();
  }

  /** Says something and waits for the answer, however long it takes. After an unknown outcome the
   * same message with the same key finds its answer. */
  prompt(
    say: string | NewMessage,
    options: CallOptions & { key?: string } = {},
  ): Promise<Prompted> {
    return this.#call("prompt", { ...message(say), key: options.key ?? null }, options);
  }

  /** Says something; what becomes of it is streamed. A break is bridged: the message is on disk. */
  async promptStream(
    say: string | NewMessage,
    options: CallOptions & { key?: string } = {},
  ): Promise<PromptStream> {
    if (this.#options.events === false) {
      const detail = "the connection was made without events";
      const said = { class: "terminal_request", detail, retryable: false } as const;
      throw new RefusedError(said, "invalid");
    }
    const events = this.#listen();
    // Known again should the answer be lost.
    const key = options.key ?? crypto.randomUUID();
    try {
      const params = { ...message(say), key, accepted: true };
      const prompted = await this.#call<Prompted>("prompt", params, options);
      return new PromptStream(prompted, events, (id) => this.message(id));
    } catch (error) {
      await events.return?.();
      throw error;
    }
  }

  /** Takes back a message that waits; `not_queued` for any other. */
  cancel(id: MessageId, options: CallOptions = {}): Promise<SavedMessage> {
    return this.#call("cancel", { message: id }, options);
  }

  /** Queues a parked message again; `not_parked` for any other. */
  retry(id: MessageId, options: CallOptions = {}): Promise<SavedMessage> {
    return this.#call("retry", { message: id }, options);
  }

  /** Records how what the session was for went; `null` takes it back. */
  recordOutcome(text: string | null, options: CallOptions = {}): Promise<void> {
    return this.#call("record_outcome", { text }, options);
  }

  interrupt(options: CallOptions = {}): Promise<void> {
    return this.#call("interrupt", {}, options);
  }

  /** Answers what the agent asks. */
  answer(ask: string, answer: Answer, options: CallOptions = {}): Promise<void> {
    return this.#call("answer", { id: ask, answer }, options);
  }

  /** Starts the process without a message. */
  wake(options: CallOptions & { fresh?: boolean } = {}): Promise<void> {
    return this.#call("wake", { fresh: options.fresh ?? false }, options);
  }

  /** Frees the process and keeps the session; `held` when something holds it. */
  release(options: CallOptions = {}): Promise<void> {
    return this.#call("release", {}, options);
  }

  /** Ends the process and cancels its work; `kept`: also what the session keeps. */
  stop(options: CallOptions & { kept?: boolean } = {}): Promise<void> {
    return this.#call("stop", { kept: options.kept ?? false }, options);
  }

  show(options: CallOptions = {}): Promise<SessionReport> {
    return this.#call("show", {}, options);
  }

  /** The newest messages, oldest first. */
  messages(limit = 20, options: CallOptions = {}): Promise<SavedMessage[]> {
    return this.#call("messages", { limit }, options);
  }

  message(id: MessageId, options: CallOptions = {}): Promise<SavedMessage> {
    return this.#call("message", { message: id }, options);
  }

  /** Ends the connection in good order; what the agent does goes on. A second close joins it. */
  close(): Promise<void> {
    this.#closing ??= (async () => {
      this.#end(new ClosedError("connection_closed", "closed by its owner"));
    })();
    return this.#closing;
  }

  [asyncDispose](): Promise<void> {
    return this.close();
  }

  async #call<T>(method: Method, params: object, options: CallOptions): Promise<T> {
    const named = options.timeoutMs === undefined ? {} : { timeout_ms: options.timeoutMs };
    const whole = { ...params, ...named };
    try {
      return (await this.#ask(method, whole, options)) as T;
    } catch (error) {
      const again = error instanceof UnknownOutcomeError && error.code === "connection_resumed";
      if (!again || !READS.has(method)) throw error;
      return (await this.#ask(method, whole, options)) as T;
    }
  }

  #ask(method: Method, params: object, options: CallOptions): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const { signal } = options;
      if (signal?.aborted) return reject(signal.reason as Error);
      if (this.#closed) return reject(this.#closed);
      const id = this.#next++;
      const forget = () => {
        this.#pending.delete(id);
        this.#waiting = this.#waiting.filter((it) => it.id !== id);
      };
      const timers: Array<ReturnType<typeof setTimeout>> = [];
      const done = () => {
        timers.forEach(clearTimeout);
        signal?.removeEventListener("abort", abort);
        forget();
      };
      const abort = () => {
        done();
        reject(signal?.reason as Error);
      };
      signal?.addEventListener("abort", abort, { once: true });
      const patience = this.#patience(method, options.timeoutMs);
      if (patience !== undefined) {
        timers.push(setTimeout(() => this.#end(late(method, patience)), patience));
      }
      const bound = this.#options.actionTimeoutMs;
      if (bound !== undefined && ORDERS.has(method)) {
        const act = () => {
          done();
          const detail = `no answer to ${method} within ${bound} ms`;
          reject(new UnknownOutcomeError("action_timeout", detail));
        };
        timers.push(setTimeout(act, bound));
      }
      const settle = (outcome: { result: unknown } | { error: Error }) => {
        done();
        if ("error" in outcome) reject(outcome.error);
        else resolve(outcome.result);
      };
      this.#give({ id, method, params, settle });
    });
  }

  /** How long an answer is waited for; none: as long as it takes. */
  #patience(method: Method, timeoutMs: number | undefined): number | undefined {
    const usual = this.#requestTimeoutMs;
    // A prompt may wait for a person.
    if (method === "prompt" || timeoutMs === 0) return undefined;
    if (timeoutMs === undefined) return usual;
    return Math.min(Math.max(timeoutMs + REQUEST_GRACE_MS, usual), REQUEST_TIMEOUT_MAX_MS);
  }

  #give(call: Call): void {
    if (this.#socket) {
      this.#pending.set(call.id, call);
      this.#socket.call(call.id, call.method, call.params);
    } else if (this.#waiting.length < WAITING_MAX) {
      this.#waiting.push(call);
    } else {
      const detail = `${WAITING_MAX} calls wait for the connection already`;
      const said = { class: "retryable", detail, retryable: true } as const;
      call.settle({ error: new RefusedError(said, "too_many_calls") });
    }
  }

  async #dial(): Promise<void> {
    const hears: Hears = {
      answered: (answer) => this.#answered(answer),
      told: (note) => this.#told(note),
      pulse: () => {
        this.#heardAt = Date.now();
      },
      closed: (code) => {
        if (this.#socket === socket && socket) this.#lost(code);
      },
    };
    let socket: Socket | undefined;
    const events = this.#options.events === false ? undefined : { after: this.#after };
    const dialled = await Socket.dial(this.#transport, this.#path, this.#hello, events, hears);
    socket = dialled.socket;
    if (this.#closed) {
      socket.leave();
      throw new NoLine(this.#closed, false);
    }
    this.#welcome = dialled.welcome;
    // It is the same connection from here on: the place was taken once.
    this.#hello = { ...this.#hello, resume: dialled.welcome.resume, take_over: false };
    this.#heardAt = Date.now();
    this.#socket = socket;
  }

  #lost(code: number | undefined): void {
    this.#socket = undefined;
    const closed = closedBy(code);
    if (closed) return this.#end(closed);
    const reason = brokenBy(code);
    if (this.#resumes) void this.#redial(reason);
    else this.#end(new ClosedError("connection_closed", "the connection broke", reason));
  }

  /** Takes the connection up again, or ends it. */
  async #redial(broken: DropReason): Promise<void> {
    const began = Date.now();
    let [pause, reason] = [PAUSE_MS, broken];
    while (!this.#closed) {
      try {
        await this.#dial();
        return this.#resumed();
      } catch (error) {
        if (!(error instanceof NoLine)) return this.#end(broke(error, "proxy_error"));
        if (!error.again) {
          const { error: why } = error;
          return this.#end(why instanceof ClosedError ? why : broke(why, "proxy_error"));
        }
        if (error.busy) reason = "proxy_restart";
      }
      const patience = reason === "proxy_restart" ? REDIAL_WHILE_BUSY_MS : REDIAL_MS;
      if (Date.now() - began + pause >= patience) {
        const detail = `no connection within ${patience / 1000} s after it broke`;
        return this.#end(new ClosedError("connection_closed", detail, reason));
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, PAUSE_MAX_MS);
    }
  }

  #resumed(): void {
    // Only what was under way is in doubt: later calls have waited.
    const detail = "the connection broke during the call, and was taken up again";
    for (const call of [...this.#pending.values()]) {
      call.settle({ error: new UnknownOutcomeError("connection_resumed", detail) });
    }
    this.#tell({ kind: "resumed" });
    const waiting = this.#waiting;
    this.#waiting = [];
    waiting.forEach((call) => this.#give(call));
  }

  #answered(answer: Answered): void {
    const call = this.#pending.get(answer.id as number);
    const error = answer.error?.data;
    call?.settle(error ? { error: failed(error) } : { result: answer.result });
  }

  #told(note: Notification): void {
    if (note.method !== "warning" && "epoch" in (note.params ?? {})) {
      this.#after = { epoch: note.params.epoch, seq: note.params.seq };
    }
    switch (note.method) {
      case "event":
        return this.#tell({ kind: "event", note: note.params });
      case "gap":
        return this.#tell({ kind: "gap", note: note.params });
      case "snapshot":
        return this.#tell({ kind: "snapshot", note: note.params });
      case "warning":
        return this.#tell({ kind: "warning", note: note.params });
    }
  }

  #tell(heard: Heard): void {
    for (const reader of this.#readers) reader.push(heard);
  }

  #listen(): Queue<Heard> {
    const queue: Queue<Heard> = new Queue(
      (count) => ({ kind: "missed", count }),
      () => this.#readers.delete(queue),
    );
    if (this.#closed) queue.end(this.#closed);
    else this.#readers.add(queue);
    return queue;
  }

  #beat(): void {
    const silent = Date.now() - this.#heardAt;
    if (!this.#socket || silent < HEARTBEAT_MS) return;
    if (silent < SILENCE_MAX_MS) return this.#socket.ping();
    this.#socket.leave();
    this.#lost(undefined);
  }

  #end(closed: ClosedError): void {
    if (this.#closed) return;
    this.#closed = closed;
    clearInterval(this.#heartbeat);
    this.#socket?.leave();
    this.#socket = undefined;
    for (const call of [...this.#pending.values(), ...this.#waiting]) call.settle({ error: closed });
    for (const reader of this.#readers) reader.end(closed);
    this.#readers.clear();
  }
}

function message(say: string | NewMessage): NewMessage {
  return typeof say === "string" ? { text: say } : say;
}

/** What the environment says: only `DROWSE_RESUME=0` switches it off. */
function mayResume(): boolean {
  return typeof process === "undefined" || process.env["DROWSE_RESUME"] !== "0";
}

function late(method: Method, patience: number): ClosedError {
  const detail = `no answer to ${method} within ${patience / 1000} s`;
  return new ClosedError("request_timeout", detail);
}

function broke(why: unknown, reason: DropReason): ClosedError {
  const detail = (why as DrowseError | Error).message;
  return new ClosedError("connection_closed", detail, reason);
}
