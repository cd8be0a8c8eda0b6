/** The words of the socket, as they go over the wire. */

import type { EventNote, GapNote, SnapshotNote, WarningNote } from "./types.js";

export type { Failure, Hello, Method, Position, Welcome } from "./types.js";

/** What the daemon says unasked. */
export type Notification =
  | { method: "event"; params: EventNote }
  | { method: "gap"; params: GapNote }
  | { method: "snapshot"; params: SnapshotNote }
  | { method: "warning"; params: WarningNote };
