/** A way to one daemon, over HTTP. Holds no connection; {@link Client.connect} makes one. */

import { defaultPlace, open } from "#transport";

import { Connection, type ConnectOptions } from "./connection.js";
import { DrowseError, TransportError, refused } from "./errors.js";
import { data } from "./sse.js";
import type { Place, Reply, Transport } from "./transport/transport.js";
import type {
  Answer,
  Event,
  HoldReport,
  KeptReport,
  MessageId,
  NewHold,
  NewKeep,
  NewMessage,
  NewSession,
  NewTask,
  ProblemBody,
  RestartedSession,
  Restarting,
  SavedMessage,
  Sent,
  SessionPage,
  SessionReport,
  SessionState,
  StatusReport,
  TakenHold,
  TaskReport,
} from "./types.js";

/** 30 s from request to answer: none waits for an agent. */
const CALL_MS = 30_000;

/** 60 s without a byte of a stream: the daemon sends a heartbeat every 15 s. */
const SILENCE_MS = 60_000;

/** 32 MiB in one answer. */
const ANSWER_BYTES_MAX = 32 << 20;

/** What every call takes. Aborting one gives the answer up; what the daemon does goes on. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** A message: a text alone waits for its turn. */
export type Say = string | NewMessage;

type Query = Record<string, string | number | undefined>;

interface Asked extends CallOptions {
  body?: unknown;
  query?: Query;
  headers?: Record<string, string>;
}

export class Client {
  readonly #transport: Transport;
  readonly #name: string;

  /**
   * Where the daemon is; left out, from Node, where `drowse` itself would look. `name` is how the
   * daemon's records call this client.
   */
  constructor(place: Place = defaultPlace(), name = "drowse-ts") {
    this.#transport = open(place);
    this.#name = name;
  }

  /** A lasting connection to one session: calls, prompts and events. */
  connect(session: string, options: ConnectOptions = {}): Promise<Connection> {
    const path = `${this.#session(session)}/ws`;
    return Connection.open(this.#transport, this.#name, path, options);
  }

  /** True while the daemon is alive. */
  async live(options: CallOptions = {}): Promise<boolean> {
    return (await this.#reply("GET", "/livez", options)).status < 300;
  }

  /** True once the daemon takes requests, false while it starts or ends. */
  async ready(options: CallOptions = {}): Promise<boolean> {
    return (await this.#reply("GET", "/readyz", options)).status < 300;
  }

  /** The OpenMetrics text. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return this.#text(await this.#reply("GET", "/metrics", options), "/metrics");
  }

  /** The daemon as a whole. */
  status(options: CallOptions = {}): Promise<StatusReport> {
    return this.#json("GET", "/v1/status", options);
  }

  /** Has the daemon replaced by the program it was started from; the sessions go on. */
  restart(options: CallOptions = {}): Promise<Restarting> {
    return this.#json("POST", "/v1/restart", options);
  }

  /** A page of the sessions, awake ones first. */
  sessions(
    query: { after?: string; limit?: number; state?: SessionState; agent?: string } = {},
    options: CallOptions = {},
  ): Promise<SessionPage> {
    return this.#json("GET", "/v1/sessions", { ...options, query });
  }

  /** Opens a session; no process is started by it. */
  open(session: NewSession, options: CallOptions = {}): Promise<SessionReport> {
    return this.#json("POST", "/v1/sessions", { ...options, body: session });
  }

  session(session: string, options: CallOptions = {}): Promise<SessionReport> {
    return this.#json("GET", this.#session(session), options);
  }

  /** Returns once the message is on disk. The same `key` again is the same message. */
  send(session: string, say: Say, options: CallOptions & { key?: string } = {}): Promise<Sent> {
    return this.#json("POST", `${this.#session(session)}/messages`, asked(say, options));
  }

  /** The same, followed by all that becomes of the message, up to its final state. */
  sendStreaming(
    session: string,
    say: Say,
    options: CallOptions & { key?: string } = {},
  ): AsyncIterable<Event> {
    const path = `${this.#session(session)}/messages`;
    return this.#events("POST", path, asked(say, options));
  }

  /** The newest messages, oldest first. */
  messages(session: string, limit = 20, options: CallOptions = {}): Promise<SavedMessage[]> {
    const path = `${this.#session(session)}/messages`;
    return this.#json("GET", path, { ...options, query: { limit } });
  }

  message(message: MessageId, options: CallOptions = {}): Promise<SavedMessage> {
    return this.#json("GET", `/v1/messages/${message}`, options);
  }

  /** Takes back a message that waits; `not_queued` for any other. */
  cancel(message: MessageId, options: CallOptions = {}): Promise<SavedMessage> {
    return this.#json("DELETE", `/v1/messages/${message}`, options);
  }

  /** Queues a parked message again; `not_parked` for any other. */
  retry(message: MessageId, options: CallOptions = {}): Promise<SavedMessage> {
    return this.#json("POST", `/v1/messages/${message}/retry`, options);
  }

  /** Records how what the session was for went; `null` takes it back. */
  recordOutcome(session: string, text: string | null, options: CallOptions = {}): Promise<void> {
    return this.#done("PUT", `${this.#session(session)}/outcome`, { ...options, body: { text } });
  }

  /** The newest kept events of the session, oldest first. */
  log(session: string, limit = 100, options: CallOptions = {}): Promise<Event[]> {
    return this.#json("GET", `${this.#session(session)}/log`, { ...options, query: { limit } });
  }

  /** How things stand, then what happens, until the daemon ends. */
  events(
    query: { session?: string; after?: number } = {},
    options: CallOptions = {},
  ): AsyncIterable<Event> {
    return this.#events("GET", "/v1/events", { ...options, query });
  }

  /** Ends the process and keeps the session; `held` when something holds it. */
  release(session: string, options: CallOptions = {}): Promise<void> {
    return this.#done("POST", `${this.#session(session)}/release`, options);
  }

  /** Ends the process and cancels its work; `kept`: also what the session keeps. */
  stop(session: string, options: CallOptions & { kept?: boolean } = {}): Promise<void> {
    const body = { kept: options.kept ?? false };
    return this.#done("POST", `${this.#session(session)}/stop`, { ...options, body });
  }

  /** Ends the process and forgets the session. */
  remove(session: string, options: CallOptions = {}): Promise<void> {
    return this.#done("DELETE", this.#session(session), options);
  }

  interrupt(session: string, options: CallOptions = {}): Promise<void> {
    return this.#done("POST", `${this.#session(session)}/interrupt`, options);
  }

  /** Starts the process without a message; `fresh`: in a new conversation. */
  wake(session: string, options: CallOptions & { fresh?: boolean } = {}): Promise<void> {
    const body = { fresh: options.fresh ?? false };
    return this.#done("POST", `${this.#session(session)}/wake`, { ...options, body });
  }

  /** Goes on in the same conversation with these variables put over those it has. */
  restartSession(
    session: string,
    env: Record<string, string>,
    options: CallOptions = {},
  ): Promise<RestartedSession> {
    return this.#json("POST", `${this.#session(session)}/restart`, { ...options, body: { env } });
  }

  /** Answers what the agent asks. */
  answer(session: string, ask: string, answer: Answer, options: CallOptions = {}): Promise<void> {
    const path = `${this.#session(session)}/asks/${encodeURIComponent(ask)}`;
    return this.#done("POST", path, { ...options, body: { answer } });
  }

  /** A background task has begun; it holds the session, unless it is ambient, until it ends. */
  startTask(session: string, task: NewTask, options: CallOptions = {}): Promise<void> {
    return this.#done("POST", `${this.#session(session)}/tasks`, { ...options, body: task });
  }

  /** It is over. One that is over already is fine. */
  endTask(session: string, name: string, options: CallOptions = {}): Promise<void> {
    const path = `${this.#session(session)}/tasks/${encodeURIComponent(name)}`;
    return this.#done("DELETE", path, options);
  }

  tasks(session: string, options: CallOptions = {}): Promise<TaskReport[]> {
    return this.#json("GET", `${this.#session(session)}/tasks`, options);
  }

  /** Keeps the session for a while, or for longer. */
  takeHold(session: string, hold: NewHold, options: CallOptions = {}): Promise<TakenHold> {
    return this.#json("POST", `${this.#session(session)}/holds`, { ...options, body: hold });
  }

  /** Lifts a hold. One that is over already is fine. */
  liftHold(session: string, hold: number, options: CallOptions = {}): Promise<void> {
    return this.#done("DELETE", `${this.#session(session)}/holds/${hold}`, options);
  }

  /** Everything that holds the session now. */
  holds(session: string, options: CallOptions = {}): Promise<HoldReport[]> {
    return this.#json("GET", `${this.#session(session)}/holds`, options);
  }

  /** Every process that is kept, or is to be, and still runs. */
  kept(options: CallOptions = {}): Promise<KeptReport[]> {
    return this.#json("GET", "/v1/kept", options);
  }

  /** Keeps a process of a live session when its backend ends. */
  keep(process: NewKeep, options: CallOptions = {}): Promise<KeptReport> {
    return this.#json("POST", "/v1/kept", { ...options, body: process });
  }

  /** An empty name would turn the path into that of the list. */
  #session(session: string): string {
    if (session === "") throw new TypeError("the session's name is empty");
    return `/v1/sessions/${encodeURIComponent(session)}`;
  }

  async #json<T>(method: string, path: string, asked: Asked): Promise<T> {
    const reply = await this.#reply(method, path, asked);
    const text = await this.#text(reply, path);
    if (reply.status >= 400) throw problem(reply.status, text, path);
    try {
      return JSON.parse(text) as T;
    } catch (cause) {
      throw new TransportError(`the answer to ${path} is not JSON`, method !== "GET", cause);
    }
  }

  async #done(method: string, path: string, asked: Asked): Promise<void> {
    await this.#json<unknown>(method, path, asked);
  }

  async *#events(method: string, path: string, asked: Asked): AsyncGenerator<Event> {
    const headers = { ...asked.headers, accept: "text/event-stream" };
    const silent = new AbortController();
    const either = asked.signal ? [asked.signal, silent.signal] : [silent.signal];
    const signal = AbortSignal.any(either);
    const reply = await this.#reply(method, path, { ...asked, headers, signal }, Infinity);
    if (reply.status >= 400) throw problem(reply.status, await this.#text(reply, path), path);
    try {
      for await (const event of data(watched(reply.body, silent))) {
        yield JSON.parse(event) as Event;
      }
    } catch (cause) {
      if (asked.signal?.aborted) throw asked.signal.reason;
      throw new TransportError(`the stream of ${path} broke off`, true, cause);
    } finally {
      silent.abort();
    }
  }

  async #reply(method: string, path: string, asked: Asked, boundMs = CALL_MS): Promise<Reply> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(asked.query ?? {})) {
      if (value !== undefined) query.set(name, String(value));
    }
    const signals = asked.signal ? [asked.signal] : [];
    if (Number.isFinite(boundMs)) signals.push(AbortSignal.timeout(boundMs));
    const body = asked.body === undefined ? undefined : JSON.stringify(asked.body);
    try {
      return await this.#transport.request({
        method,
        path: query.size > 0 ? `${path}?${query}` : path,
        headers: {
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...agent(this.#name),
          ...asked.headers,
        },
        body,
        signal: AbortSignal.any(signals),
      });
    } catch (cause) {
      if (asked.signal?.aborted) throw asked.signal.reason;
      const sent = !NOT_SENT.has((cause as { code?: string }).code ?? "");
      const detail = sent
        ? `no answer to ${method} ${path}`
        : `nobody listens at ${this.#transport.name}`;
      throw new TransportError(detail, sent && method !== "GET", cause);
    }
  }

  async #text(reply: Reply, path: string): Promise<string> {
    const text = new TextDecoder();
    let whole = "";
    try {
      for await (const chunk of reply.body) {
        whole += text.decode(chunk, { stream: true });
        if (whole.length > ANSWER_BYTES_MAX) throw new Error("it is longer than 32 MiB");
      }
    } catch (cause) {
      throw new TransportError(`the answer to ${path} broke off`, true, cause);
    }
    return whole + text.decode();
  }
}

/** What Node says when no connection was made. */
const NOT_SENT: ReadonlySet<string> = new Set(["ECONNREFUSED", "ENOENT", "EACCES", "ENOTSOCK"]);

/** Browsers do not let a program name itself. */
function agent(name: string): Record<string, string> {
  return typeof process === "undefined" ? {} : { "user-agent": name };
}

function asked(say: Say, options: CallOptions & { key?: string }): Asked {
  const body: NewMessage = typeof say === "string" ? { text: say } : say;
  const headers: Record<string, string> = options.key ? { "idempotency-key": options.key } : {};
  return options.signal ? { body, headers, signal: options.signal } : { body, headers };
}

function problem(status: number, text: string, path: string): DrowseError {
  try {
    const body = JSON.parse(text) as ProblemBody;
    if (typeof body.code === "string") return refused(body);
  } catch {
    // Not the daemon's own words.
  }
  return new TransportError(`${path} was answered with status ${status}`, status >= 500);
}

/** Ends a stream that says nothing any more. */
async function* watched(
  body: AsyncIterable<Uint8Array>,
  silent: AbortController,
): AsyncGenerator<Uint8Array> {
  const late = () => silent.abort(new Error(`nothing was heard for ${SILENCE_MS / 1000} s`));
  let timer = setTimeout(late, SILENCE_MS);
  try {
    for await (const chunk of body) {
      clearTimeout(timer);
      timer = setTimeout(late, SILENCE_MS);
      yield chunk;
    }
  } finally {
    clearTimeout(timer);
  }
}
