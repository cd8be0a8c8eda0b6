/** Client of Drowse. See README.md. */

export { Client, type CallOptions, type Say } from "./client.js";
export {
  Connection,
  REDIAL_MS,
  REDIAL_WHILE_BUSY_MS,
  REQUEST_TIMEOUT_MS,
  type ConnectOptions,
  type Heard,
} from "./connection.js";
export {
  ClosedError,
  type DropReason,
  DrowseError,
  RefusedError,
  TransportError,
  UnknownOutcomeError,
} from "./errors.js";
export { type Piece, PromptStream } from "./prompt.js";
export type { Place } from "./transport/transport.js";
export type * from "./types.js";
