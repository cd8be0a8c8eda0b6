/**
 * What can go wrong, told apart by what it means for the caller: what ends a connection, what leaves
 * an outcome open, and what was refused are three types; only the last may say that nothing was done.
 */

import type { Failure, FailureCode, ProblemBody } from "./types.js";

export type DropReason = NonNullable<Failure["drop_reason"]>;

/** Everything that this package throws, besides what an `AbortSignal` gives as its reason. */
export abstract class DrowseError extends Error {
  /** The wire name of what went wrong; none when there was no connection. */
  readonly code: FailureCode | undefined;
  /** True when the call may have been carried out: look before it is repeated. */
  readonly mayHaveRun: boolean;
  /** True when the same call may succeed later. Nothing was done. */
  readonly retryable: boolean;

  protected constructor(
    detail: string,
    about: { code?: FailureCode; mayHaveRun: boolean; retryable?: boolean; cause?: unknown },
  ) {
    const said = about.code ? `${about.code}: ${detail}` : detail;
    super(said, about.cause === undefined ? undefined : { cause: about.cause });
    this.name = new.target.name;
    this.code = about.code;
    this.mayHaveRun = about.mayHaveRun;
    this.retryable = about.retryable ?? false;
  }

  /** True when no call on the connection can succeed any more. */
  get isTerminal(): boolean {
    return false;
  }
}

/** The connection is over: every call on it fails from now on. */
export class ClosedError extends DrowseError {
  /** For `connection_closed`: why it could not be taken up again. */
  readonly dropReason: DropReason | undefined;

  constructor(code: FailureCode, detail: string, dropReason?: DropReason) {
    super(detail, { code, mayHaveRun: !NOTHING_DONE.has(code) });
    this.dropReason = dropReason;
  }

  override get isTerminal(): boolean {
    return true;
  }
}

/** Ends of a connection before anything could be asked on it. */
const NOTHING_DONE: ReadonlySet<FailureCode> = new Set(["unauthorized", "forbidden"]);

/** The call may have run; the connection goes on. */
export class UnknownOutcomeError extends DrowseError {
  constructor(code: FailureCode, detail: string) {
    super(detail, { code, mayHaveRun: true });
  }
}

/** The daemon said no, and did nothing. */
export class RefusedError extends DrowseError {
  /** For `held` and `driven`: by what, or by whom. */
  readonly heldBy: readonly string[];
  /** For what may succeed later, when that is known: in so many milliseconds. */
  readonly retryInMs: number | undefined;
  /** Whether the session, or the request, is beyond hope, or only the moment was wrong. */
  readonly class: Failure["class"];
  /** The HTTP status, over HTTP. */
  readonly status: number | undefined;

  constructor(
    said: Pick<Failure, "class" | "detail" | "retryable" | "held_by" | "retry_in_ms">,
    code: FailureCode,
    status?: number,
  ) {
    super(said.detail, { code, mayHaveRun: false, retryable: said.retryable });
    this.class = said.class;
    this.heldBy = said.held_by ?? [];
    this.retryInMs = said.retry_in_ms ?? undefined;
    this.status = status;
  }
}

/** The daemon could not be reached, or what it said could not be understood. */
export class TransportError extends DrowseError {
  constructor(detail: string, mayHaveRun: boolean, cause?: unknown) {
    super(detail, { mayHaveRun, retryable: !mayHaveRun, cause });
  }
}

/** What a failure on a socket means. */
export function failed(failure: Failure): DrowseError {
  if (failure.ends === "connection") {
    return new ClosedError(failure.code, failure.detail, failure.drop_reason ?? undefined);
  }
  return failure.may_have_run
    ? new UnknownOutcomeError(failure.code, failure.detail)
    : new RefusedError(failure, failure.code);
}

/** What a problem over HTTP means. */
export function refused(problem: ProblemBody): DrowseError {
  // A newer daemon may have codes of its own; they are strings all the same.
  const code = problem.code as FailureCode;
  return problem.class === "outcome_unknown"
    ? new UnknownOutcomeError(code, problem.detail)
    : new RefusedError(problem, code, problem.status);
}
