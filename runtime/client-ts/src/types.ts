// Made by scripts/generate.mjs from docs/socket.schema.json and the OpenAPI types. Do not edit.

/** A person's answer. */
export type Answer = "allow" | "deny" | {
  text: string;
};

export type AnswerCall = {
  id: string;
  answer: "allow" | "deny" | {
  text: string;
};
};

/** A person is asked. */
export type Ask = {
  /** All of it, as the agent sent it, bounded. */
  detail: string;
  /** The agent's id for it. */
  id: string;
  /** May I, or which? */
  kind: AskKind;
  /** One line for people. */
  title: string;
};

/** What sort of answer is wanted. */
export type AskKind = "approval" | "question";

/** `POST /v1/sessions/{id}/asks/{ask}`: answer what the agent asks. */
export type AskReply = {
  /** The answer. */
  answer: Answer;
};

/** The part of a report that only an awake session has. */
export type AwakeReport = {
  /** It is released and started again with another environment once it is at rest. */
  account_change?: ChangeReport | null;
  /** The agent's process. */
  agent_pid?: number | null;
  /** What the agent asks a person. */
  asks: Array<Ask>;
  /** Why it could not be released although nothing holds it. */
  cannot_resume?: string | null;
  /** Evidence, newest first: what was seen, and how long ago. */
  evidence: Array<Evidence>;
  /** What keeps it. Empty: nothing. */
  holds: Array<HoldReport>;
  /** Quiet for this long, in milliseconds; only at rest. */
  idle_ms?: number | null;
  /** The keeper above it. */
  keeper?: ProcIdentity | null;
  /** When the session next has something to decide, in milliseconds. */
  next_deadline_ms?: number | null;
  /** The idle rule acts in this many milliseconds; `None` while something holds it, or never. */
  releases_in_ms?: number | null;
  /** The background tasks that are known, ambient ones too. */
  tasks: Array<TaskReport>;
  /** Measured when asked for. */
  usage?: Usage | null;
};

/** An account change that waits. */
export type ChangeReport = {
  /** How long ago, in milliseconds. */
  age_ms: number;
  /** Who asked for it. */
  by: Who;
};

/** How the agent's conversation is found again. */
export type Conversation = {
  /** The agent's own id for it. Empty: it has none, and any process is as good as another. */
  native_id: string;
  /** No process may take it up before this; see `AgentStatus::Young`. */
  not_before?: WallTime | null;
  /** Where the agent keeps it, when the adapter knows. */
  path: string | null;
  /** True once the agent can resume it: at least one acknowledged turn is on its disk. */
  resumable: boolean;
  /** What was set in it since it began and has to be set again, by the adapter's own words; at most `SETTINGS_MAX`. */
  settings?: Record<string, string>;
};

/** The end of one backend: why, by whom, what was ended and what it freed. */
export type EndReport = {
  /** When it was over. */
  at: WallTime;
  /** Who asked. */
  by: Who;
  /** What outlived it. */
  kept?: Array<KeptProcess>;
  /** True when a turn was running: its outcome is unknown. */
  mid_turn: boolean;
  /** Every process seen between the snapshot before the teardown and its end, with the reading that found it and the last signal it was sent; 2,048 at most. */
  processes: Array<ProcReport>;
  /** Processes that outlived the agent's own exit and were ended by us. */
  reaped: Array<ProcReport>;
  /** Why. */
  reason: Reason;
  /** Their memory (PSS) in bytes, measured by that snapshot. */
  released_bytes: number;
  /** Those of the processes that listened on TCP ports, the agent itself left out. */
  servers?: Array<ProcReport>;
  /** How the agent itself ended, when it is known. */
  status: ExitStatus | null;
  /** The last lines of the agent's stderr, redacted; only for a failure. */
  stderr_tail: string;
  /** Processes that could not be ended; empty for a clean release. */
  survivors: Array<Survivor>;
};

/** One event with its place in the order of all. */
export type Event = ({
  /** When it was published. */
  at: WallTime;
  /** Counts up by one, across restarts of the daemon. Pieces of output share the number of the event before them: they are not kept. */
  seq: number;
  /** Whom it concerns; `None`: the daemon. */
  session: SessionId | null;
}) & (SessionEvent);

export type EventNote = {
  epoch: string;
  seq: number;
  event: Event;
};

/** One thing seen of a session, for `explain`. */
export type Evidence = {
  /** How long ago, in milliseconds. */
  age_ms: number;
  /** For people: "turn ended", "last output", "process launched". */
  what: string;
};

/** How a process ended. */
export type ExitStatus = {
  code: number;
} | {
  signal: number;
};

export type Failure = {
  code: FailureCode;
  class: "terminal_session" | "terminal_request" | "retryable" | "outcome_unknown";
  ends: "call" | "connection";
  retryable: boolean;
  may_have_run: boolean;
  detail: string;
  drop_reason?: "transport_lost" | "proxy_restart" | "proxy_error" | "superseded" | "resume_refused" | null;
  held_by?: Array<string>;
  retry_in_ms?: number | null;
};

export type FailureCode = "request_timeout" | "connection_closed" | "idle_timeout" | "hard_timeout" | "unauthorized" | "forbidden" | "unanswered" | "action_timeout" | "connection_resumed" | "resume_refused" | "driven" | "taken_over_too_soon" | "not_driver" | "too_many_calls" | "too_many_connections" | "no_such_method" | "not_a_request" | "out_of_order" | "answer_too_large" | "no_such_session" | "no_such_message" | "ambiguous" | "name_taken" | "unknown_agent" | "invalid" | "held" | "not_running" | "cannot_resume" | "relayed" | "not_pending" | "not_queued" | "not_parked" | "inbox_full" | "draining" | "cannot_restart" | "store_failed" | "session_failed" | "no_such_path" | "method_not_allowed" | "body_too_large" | "body_too_slow" | "too_many_streams" | "not_ready" | "unknown";

export type GapNote = {
  epoch: string;
  seq: number;
  missed?: number | null;
};

export type Hello = {
  version: number;
  role?: Role;
  client?: string | null;
  token?: string | null;
  resume?: string | null;
  take_over?: boolean;
  keep?: boolean | null;
  idle_timeout_ms?: number | null;
  hard_timeout_ms?: number | null;
};

/** A hold somebody took by hand or by program; unique in one session. */
export type HoldId = number;

/** What kind of thing holds a session. Order: as shown to people. */
export type HoldKind = "turn" | "compaction" | "command" | "queued" | "approval" | "question" | "task" | "schedule" | "lease" | "unknown";

/** One hold in a report. */
export type HoldReport = {
  /** How long it has held, in milliseconds. */
  age_ms: number;
  /** When it ends by itself, in milliseconds from now. */
  ends_in_ms?: number | null;
  /** For holds that can be lifted by id. */
  id?: HoldId | null;
  /** What kind. */
  kind: HoldKind;
  /** Who is behind it. */
  owner: string;
  /** For people. */
  why: string;
};

/** Why a host is told that its agent has ended. A release is never told. */
export type HostEnd = {
  exited: ExitStatus | null;
} | "ended" | {
  failed: {
  /** For people. */
  error: string;
};
} | "shutdown";

/** One launch of a session's process; counts up from 1. `Incarnation(0)`: never launched.  Every fact about a process carries it, so that news of an older process changes nothing. */
export type Incarnation = number;

/** Which processes outlive a release. */
export type KeepRule = string;

/** A process that outlives its backend, with all that is below it. */
export type KeptProcess = {
  /** The topmost process that is kept. Its ports are those of all that is below it, too. */
  process: ProcReport;
  /** Why it is kept. */
  rule: KeepRule;
  /** Since when. */
  since: WallTime;
  /** When it is ended; `None`: with the session, or when somebody stops it. */
  until?: WallTime | null;
};

/** One kept process as readers see it. */
export type KeptReport = ({
  /** True once its backend has ended; before, it is one of the session's processes. */
  outlives: boolean;
  /** Whose it is. */
  session: SessionId;
  /** That session's name. */
  session_name: string;
}) & (KeptProcess);

export type MessageCall = {
  message: number;
};

/** A message to an agent, numbered by the store in the order of acceptance. */
export type MessageId = number;

/** What became of a message. */
export type MessageState = "queued" | "delivered" | "answered" | "failed" | "unknown" | "cancelled" | "parked";

export type MessagesCall = {
  limit?: number | null;
};

export type Method = "hello" | "prompt" | "cancel" | "retry" | "record_outcome" | "interrupt" | "answer" | "wake" | "release" | "stop" | "show" | "messages" | "message" | "subscribe" | "ping" | "close";

/** A short name made of `a-z`, `0-9`, `-`, `_` and `.`, at most 64 characters, not starting with a separator: what a configuration key, an agent or an extension may be called. */
export type Name = string;

/** `POST /v1/sessions/{id}/holds`: keep the session for a while. Answered by a `TakenHold`. */
export type NewHold = {
  /** One that was taken before, to make it last longer; `None`: another one. */
  id?: HoldId | null;
  /** Who holds it, for people. */
  owner?: string | null;
  /** For how long: a duration (`"20m"`), at most 24 h. */
  ttl: string;
  /** For people. */
  why: string;
};

/** `POST /v1/kept`: keep one process. Answered by a `KeptReport`. */
export type NewKeep = {
  /** The process that listens on this TCP port. */
  listen?: number | null;
  /** The process with this number; either this or `listen`. */
  pid?: number | null;
  /** Look only below this session (id, unique prefix or name). */
  session?: string | null;
  /** How long, as a duration for people (`"2h"`); `None`: as long as the session. */
  ttl?: string | null;
};

/** `POST /v1/sessions/{id}/messages`: say something to the agent. */
export type NewMessage = {
  /** How urgent it is. */
  priority?: Priority;
  /** What to say. */
  text: string;
};

/** `PUT /v1/sessions/{id}/outcome`: how what the session was for went, in the client's words. */
export type NewOutcome = {
  /** 1 to 4,096 bytes; `null` takes back what was recorded. */
  text: string | null;
};

/** `POST /v1/sessions`: open a session. Answered by a `SessionReport`.  Arguments and environment are secrets: `Debug` shows neither. */
export type NewSession = {
  /** Which agent, by its name in the configuration or on PATH. */
  agent: Name;
  /** Arguments put after those the configuration gives the agent. */
  args?: Array<string>;
  /** Where the agent runs: an absolute path. */
  cwd: string;
  /** The agent's whole environment: the caller's, not the daemon's. */
  env?: Record<string, string>;
  /** Limits for this session alone, by their configuration key (`idle_after`), as a duration for people (`"10m"`) or `"off"`, `"0"`. */
  limits?: Record<string, string>;
  /** The session's name; must be free. `None`: its id is its name. */
  name?: Name | null;
};

/** `POST /v1/sessions/{id}/tasks`: a background task has begun. The same name again changes it. */
export type NewTask = {
  /** A watcher that is always there; it does not hold. */
  ambient?: boolean;
  /** What sort of work it is, in a word; `task` when it is not given. */
  kind?: string | null;
  /** Unique among the tasks that are told this way. */
  name: string;
  /** Who tells of it, for people. */
  owner?: string | null;
  /** For people; its name when it is not given. */
  why?: string | null;
};

/** How what a session was for went, in a client's words. */
export type Outcome = {
  /** When it said so. */
  at: WallTime;
  /** Which client. */
  by: Who;
  /** What the client says. */
  text: string;
};

export type OutcomeCall = {
  text: string | null;
};

export type Position = {
  epoch: string;
  seq: number;
};

/** How urgent a message is. In order: of two that wait, the one that compares less goes first. */
export type Priority = "now" | "next" | "later";

/** An answer with a status of 400 or more (RFC 9457). */
export type ProblemBody = {
  /** What it means for the sender. */
  class: ProblemClass;
  /** The kind of problem for programs: `Refusal::code`, or one of the endpoint's own. */
  code: string;
  /** What went wrong this time, for people. */
  detail: string;
  /** For `held`: what holds the session, for people. */
  held_by?: Array<string>;
  /** True when the same request may succeed later. */
  retryable: boolean;
  /** The HTTP status, repeated. */
  status: number;
  /** The kind of problem in a few words, the same for every problem with this code. */
  title: string;
  /** A URI for the kind of problem; `about:blank` when `code` says it all. */
  type: string;
};

/** What a failed request means for its sender. */
export type ProblemClass = "terminal_session" | "terminal_request" | "retryable" | "outcome_unknown";

/** One process, for ever: a pid alone is reused, a pid with its start time (and the boot it belongs to) is not. */
export type ProcIdentity = {
  /** The kernel's number for it. Always above 1: see `ProcIdentity::new`. */
  pid: number;
  /** Field 22 of `/proc/PID/stat`: clock ticks from boot to its start. */
  start_ticks: number;
};

/** One process seen in a walk of a tree. */
export type ProcReport = {
  /** Which process. */
  identity: ProcIdentity;
  /** The TCP ports it listens on, in order; looked for by `Snapshot` alone. */
  listens?: Array<number>;
  /** The kernel's name for it (`comm`, at most 15 bytes), with control characters replaced. Its arguments are never reported: they hold secrets. */
  name: string;
  /** The pid of its parent at the time of the walk. */
  parent: number;
  /** The process session it is in; 0: not looked at. Only `Look` does. */
  process_session?: number;
  /** Proportional set size in bytes; 0 when it could not be read. */
  pss_bytes: number;
  /** Which reading of the tree first found it: 0 the snapshot before the teardown, 1 the one that sent SIGTERM, 2 and up those of the kill. */
  scan: number;
  /** The last signal that the reaper sent it to end it; `None`: it ended without one. */
  signal?: number | null;
};

export type Prompt = {
  text: string;
  key?: string | null;
  accepted?: boolean;
  priority?: Priority;
};

export type Prompted = {
  message: number;
  duplicate: boolean;
  state: MessageState;
  answer: string;
};

/** Why a backend ended. Set once, at the decision, and the same in log, event, API, metric and command line. */
export type Reason = "idle" | "manual" | "account_change" | "task_hold_expired" | "approval_expired" | "hard_limit" | "detached" | "start_failed" | {
  crashed: {
  /** How it ended; `None`: it stopped reading, or nobody can tell. */
  status: ExitStatus | null;
};
} | "daemon_shutdown" | "stopped" | "removed";

/** `POST /v1/sessions/{id}/restart`: go on in the same conversation with another environment.  An environment is a secret: `Debug` does not show it. */
export type RestartSession = {
  /** Variables put over those the session has. */
  env?: Record<string, string>;
};

/** Answer to it: the environment is on disk. */
export type RestartedSession = {
  /** What it waits for, for people. */
  held_by?: Array<string>;
  /** True when it is restarted only once it is at rest. */
  waits: boolean;
};

/** Answer to `POST /v1/restart`: the daemon is being replaced by the program it was started from. */
export type Restarting = {
  /** The version that ends. */
  from: string;
  /** The version that begins, by that program's own word. */
  to: string;
};

export type Role = "watch" | "drive";

/** A message and its fate. */
export type SavedMessage = {
  /** The agent's answer, or what went wrong; empty while there is none. */
  answer: string;
  /** When it was accepted. */
  at: WallTime;
  /** Its number. */
  id: MessageId;
  /** The client's own key for it, if it gave one. */
  key: string | null;
  /** How urgent it is. */
  priority: Priority;
  /** Whose. */
  session: SessionId;
  /** What became of it. */
  state: MessageState;
  /** What was said. */
  text: string;
};

/** A message was accepted; it is on disk. */
export type Sent = {
  /** True when the key was known: this is the first message's number. */
  duplicate: boolean;
  /** Its number. */
  message: MessageId;
  /** The session it was sent to. */
  session: SessionId;
};

/** What happened. */
export type SessionEvent = {
  event: "snapshot";
  /** The daemon. */
  status: StatusReport;
} | {
  event: "opened";
  /** It. */
  report: SessionReport;
} | {
  event: "state_changed";
  /** From. */
  from: SessionState;
  /** To. */
  to: SessionState;
} | {
  /** The agent's pid. */
  agent_pid: number;
  event: "launched";
  /** Which launch. */
  incarnation: Incarnation;
} | {
  event: "ready";
  /** Which launch. */
  incarnation: Incarnation;
  /** True when an earlier conversation was resumed. */
  resumed: boolean;
} | {
  /** The agent's pid, which is the same as before. */
  agent_pid: number;
  event: "adopted";
  /** Which launch. */
  incarnation: Incarnation;
} | {
  event: "host_attached";
  /** The process that stands in the agent's place for it. */
  pid: number;
} | {
  event: "host_lost";
  /** The process that stood in the agent's place for it. */
  pid: number;
} | {
  /** What it was told. */
  end: HostEnd;
  event: "host_ended";
  /** The process that stood in the agent's place for it. */
  pid: number;
} | {
  /** Why. */
  error: string;
  event: "start_failed";
  /** Which launch. */
  incarnation: Incarnation;
  /** The next try, in milliseconds from now; `None`: none by itself. */
  retry_in_ms: number | null;
} | {
  /** Who asked for it. */
  by: Who;
  /** When it was over. */
  ended: WallTime;
  event: "woken";
  /** The processes that ended; of a large tree the first 64. */
  processes: Array<ProcReport>;
  /** Why that ended. */
  reason: Reason;
} | {
  event: "message_queued";
  /** Which. */
  message: MessageId;
} | {
  event: "message_changed";
  /** Which. */
  message: MessageId;
  /** What it is now. */
  state: MessageState;
  /** The answer, or what went wrong. */
  text: string;
} | {
  /** Which client. */
  by: Who;
  event: "outcome_recorded";
  /** What it says; `None`: it took back what was recorded. */
  text: string | null;
} | {
  event: "turn_started";
  /** The message that caused it; `None`: the agent began by itself. */
  message: MessageId | null;
} | {
  event: "output";
  /** The message it answers. */
  message: MessageId | null;
  /** The piece. */
  text: string;
} | {
  /** What went wrong, if something did. */
  error: string | null;
  event: "turn_ended";
  /** The message that caused it. */
  message: MessageId | null;
} | {
  /** What. */
  ask: Ask;
  event: "asked";
} | {
  /** Who settled it, and how. */
  by: Who;
  event: "settled";
  /** The id it was asked with. */
  id: string;
} | {
  event: "tasks_changed";
  /** All background tasks there are now. */
  tasks: Array<Task>;
} | {
  event: "hold_taken";
  /** Which. */
  id: HoldId;
  /** Who. */
  owner: string;
  /** How long it lasts, in milliseconds. */
  ttl_ms: number;
  /** For people. */
  why: string;
} | {
  event: "hold_lifted";
  /** True when nobody lifted it. */
  expired: boolean;
  /** Which. */
  id: HoldId;
} | {
  event: "release_deferred";
  /** What. */
  held_by: Array<string>;
  /** For how long background work alone has pinned it, in milliseconds. */
  pinned_ms: number;
} | {
  event: "limit_warned";
  /** How long from now, in milliseconds. */
  in_ms: number;
  /** Which one. */
  reason: Reason;
} | {
  /** Who asked. */
  by: Who;
  event: "ending";
  /** Why. */
  reason: Reason;
} | {
  /** All about it. */
  end: EndReport;
  event: "released";
} | {
  event: "release_failed";
  /** What is left. */
  survivors: Array<Survivor>;
} | {
  /** Who asked. */
  by: Who;
  event: "keep_asked";
  /** Which, and why. */
  kept: KeptProcess;
} | {
  event: "kept";
  /** They. */
  processes: Array<KeptProcess>;
} | {
  /** Who ended them: `rule` when their time was over, `outside` when they ended by themselves. */
  by: Who;
  event: "kept_ended";
  /** They. */
  processes: Array<KeptProcess>;
} | {
  event: "notice";
  /** For people. */
  text: string;
} | {
  event: "removed";
} | {
  event: "restarting";
} | {
  event: "draining";
} | {
  event: "gap";
  /** How many, when that is known. */
  missed: number | null;
};

/** A supervised conversation; it outlives every process that ever served it.  Shown as 12 characters of base 32. Any unique prefix is accepted where a person types one. */
export type SessionId = string;

/** A page of a listing. */
export type SessionPage = {
  /** Give it back as `after` for the next page; `None`: this was the last. */
  next?: string | null;
  /** Awake ones first, then the most recently used. */
  sessions: Array<SessionReport>;
  /** How many there are in all. */
  total: number;
};

/** One session as readers see it. */
export type SessionReport = {
  /** Its agent. */
  agent: Name;
  /** Only while it is awake. */
  awake?: AwakeReport | null;
  /** How its conversation is found again. */
  conversation?: Conversation | null;
  /** When it was opened. */
  created: WallTime;
  /** Where the agent runs. */
  cwd: string;
  /** Why its newest process ended. */
  end?: EndReport | null;
  /** The process that stands in the agent's place for its host, while that is there. */
  host_pid?: number | null;
  /** Its id. */
  id: SessionId;
  /** The newest launch; 0: never launched. */
  incarnation: Incarnation;
  /** What outlives its processes, or is to. */
  kept?: Array<KeptReport>;
  /** When it was last used. */
  last_active: WallTime;
  /** The last failure to start or resume. */
  last_error?: string | null;
  /** Its name; the id when none was given. */
  name: string;
  /** What a client recorded as its outcome; absent means inconclusive, never "nothing came of it". */
  outcome?: Outcome | null;
  /** The adapter's protocol. */
  protocol: Name;
  /** Messages that wait. */
  queued: number;
  /** A host relays it, or did: its agent was started by `drowse run`. */
  relayed?: boolean;
  /** Its state. */
  state: SessionState;
  /** When the state last changed. */
  state_since: WallTime;
};

/** A session's state in one word, as people and programs see it. */
export type SessionState = "new" | "starting" | "working" | "needs_you" | "waiting" | "resting" | "releasing" | "released" | "stopping" | "stopped" | "interrupted" | "failing";

export type SnapshotNote = {
  epoch: string;
  seq: number;
  report: SessionReport;
};

export type SocketBounds = {
  message_bytes_max?: number;
  calls_max?: number;
  heartbeat_ms?: number;
  detach_hold_ms?: number;
  call_ms?: number;
  call_grace_ms?: number;
  call_ms_max?: number;
};

/** How many sessions are in each state; every state is listed. */
export type StateCount = {
  /** How many. */
  sessions: number;
  /** The state. */
  state: SessionState;
};

/** The daemon as readers see it. */
export type StatusReport = {
  /** Backends this daemon took over from an earlier one when it started. */
  adopted: number;
  /** Live backends. */
  backends: number;
  /** True once it is shutting down. */
  draining: boolean;
  /** The daemon's pid. */
  pid: number;
  /** True once it takes requests. */
  ready: boolean;
  /** Bytes those releases freed. */
  released_bytes_total: number;
  /** Backends released since the daemon started. */
  released_total: number;
  /** Facts of older launches that were ignored. */
  stale_facts_total: number;
  /** Sessions by state. */
  states: Array<StateCount>;
  /** True while the store refuses writes (a full disk); nothing is accepted meanwhile. */
  store_failing: boolean;
  /** Extensions and other subscribers. */
  subscribers: Array<SubscriberReport>;
  /** How long it has run, in milliseconds. */
  uptime_ms: number;
  /** Drowse's version. */
  version: string;
};

export type StopCall = {
  kept?: boolean;
};

/** `POST /v1/sessions/{id}/stop`: an empty body is the default one. */
export type StopSession = {
  /** End what the session keeps, too. */
  kept?: boolean;
};

export type Subscribe = {
  after?: Position | null;
};

/** What an extension is and how well it keeps up. */
export type SubscriberReport = {
  /** False once it is gone. */
  alive: boolean;
  /** Events it was too slow for, or too dead. */
  lagged_total: number;
  /** Its name. */
  name: string;
};

/** A process the reaper could not end, and why. */
export type Survivor = {
  /** Which process. */
  process: ProcReport;
  /** Its state letter in `/proc/PID/stat` when the reaper gave up (`D`: uninterruptible). */
  state: string;
  /** What stood in the way, for people. */
  why: string;
};

/** A hold was taken, or lasts longer now. */
export type TakenHold = {
  /** Which, to lift it or make it last longer. */
  id: HoldId;
  /** The session that it holds. */
  session: SessionId;
  /** How long it lasts from now, in milliseconds. */
  ttl_ms: number;
};

/** One background task. */
export type Task = {
  /** A watcher that is always there; it does not hold. */
  ambient: boolean;
  /** For people; bounded, without control characters. */
  description: string;
  /** The agent's name for it. */
  id: string;
  /** `local_bash`, `local_agent`, a status key: the agent's word. */
  kind: string;
};

/** One background task in a report. */
export type TaskReport = ({
  /** Known for this long, in milliseconds. */
  age_ms: number;
  /** Who told of it; empty when an older daemon does not say. */
  owner: string;
}) & (Task);

/** Memory and number of processes of one backend. */
export type Usage = {
  /** Processes below the keeper. */
  processes: number;
  /** Their memory (PSS), in bytes. */
  pss_bytes: number;
};

export type WakeCall = {
  fresh?: boolean;
};

/** `POST /v1/sessions/{id}/wake`: start the process without a message. An empty body is the default one. */
export type WakeSession = {
  /** Begin a new conversation instead of resuming the old one. */
  fresh?: boolean;
};

/** A wall-clock moment in milliseconds since 1970, UTC: for people and records, never for decisions. */
export type WallTime = number;

export type WarningNote = {
  limit: string;
  in_ms: number;
};

export type Welcome = {
  version: number;
  daemon: string;
  session: string;
  connection: number;
  resume: string;
  resumed: boolean;
  role: Role;
  capabilities: Array<Method>;
  bounds: SocketBounds;
  position: Position;
};

/** Who made something happen. */
export type Who = {
  kind: "rule";
} | {
  kind: "client";
  name: string;
} | {
  kind: "extension";
  name: string;
} | {
  kind: "daemon";
} | {
  kind: "outside";
};
