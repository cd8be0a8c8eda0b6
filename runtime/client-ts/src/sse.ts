/** Server-sent events (the `text/event-stream` of HTML), as far as the daemon uses them. */

/** 64 MiB: an event with an agent's longest line, with escapes. */
const EVENT_BYTES_MAX = 64 << 20;

/** The data of each event, in order. */
export async function* data(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const text = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  for await (const chunk of body) {
    rest += text.decode(chunk, { stream: true });
    const complete = rest.split("\n");
    rest = complete.pop() ?? "";
    for (const line of complete.map((it) => it.replace(/\r$/, ""))) {
      if (line === "") {
        if (lines.length > 0) yield lines.join("\n");
        lines = [];
      } else if (line.startsWith("data:")) {
        lines.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    if (rest.length > EVENT_BYTES_MAX) throw new Error("an event without end");
  }
}
