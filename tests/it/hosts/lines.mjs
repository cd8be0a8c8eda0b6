// What the hosts in this folder have in common: a test says `say TEXT` on stdin, one a line, and
// gets one JSON object a line back. The end of stdin ends the host in its own way.
import readline from "node:readline";

export function tell(what) {
  process.stdout.write(JSON.stringify(what) + "\n");
}

export async function obey(say) {
  tell({ host: "ready" });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      tell({ host: "answer", text: await say(line) });
    } catch (error) {
      tell({ host: "failed", why: String(error?.message ?? error) });
    }
  }
}
