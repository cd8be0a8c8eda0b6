/** Browsers, and whatever else has `fetch` and `WebSocket`. */

import type { Ear, Line, Place, Reply, Request, Transport } from "./transport.js";

/** There is no place to look for the daemon in a browser. */
export function defaultPlace(): Place {
  throw new TypeError("say where the daemon is: { url, token }");
}

export function open(place: Place): Transport {
  if (!("url" in place)) {
    throw new TypeError("a Unix socket can only be reached from Node");
  }
  const base = new URL(place.url);
  const { token } = place;
  return {
    name: base.origin,
    helloToken: token,
    async request(request: Request): Promise<Reply> {
      const answer = await fetch(new URL(request.path, base), {
        method: request.method,
        headers: { ...request.headers, authorization: `Bearer ${token}` },
        body: request.body ?? null,
        signal: request.signal,
      });
      return { status: answer.status, body: bytes(answer.body) };
    },
    dial: (path, ear, signal) => dial(base, path, ear, signal),
  };
}

async function* bytes(body: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function dial(base: URL, path: string, ear: Ear, signal: AbortSignal): Promise<Line> {
  const place = new URL(path, base);
  place.protocol = place.protocol.replace("http", "ws");
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const socket = new WebSocket(place);
    let opened = false;
    const abort = () => {
      reject(signal.reason as Error);
      socket.close();
    };
    signal.addEventListener("abort", abort, { once: true });
    socket.onopen = () => {
      opened = true;
      signal.removeEventListener("abort", abort);
      resolve({
        send: (text) => {
          if (socket.readyState === WebSocket.OPEN) socket.send(text);
        },
        close: () => socket.close(1000, "bye"),
      });
    };
    socket.onmessage = ({ data }) => {
      ear.pulse();
      if (typeof data === "string") ear.message(data);
    };
    socket.onclose = ({ code }) => {
      signal.removeEventListener("abort", abort);
      // 1005 and 1006 are what browsers say when nothing was said.
      if (opened) ear.closed(code === 1005 || code === 1006 ? undefined : code);
      // Why a handshake failed, browsers do not tell.
      else reject(new Error("no WebSocket could be opened"));
    };
  });
}
