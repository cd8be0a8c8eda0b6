// A host of Claude Code: the Claude Agent SDK, told that the executable is another one. All lines
// are one conversation.
//
// node claude_sdk.mjs FOLDER-OF-NODE-MODULES EXECUTABLE
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { obey, tell } from "./lines.mjs";

const [modules, executable] = process.argv.slice(2);
const found = createRequire(modules + "/").resolve("@anthropic-ai/claude-agent-sdk");
const { query } = await import(pathToFileURL(found));

let hand = () => {};
async function* prompts() {
  for (;;) {
    const text = await new Promise((resolve) => (hand = resolve));
    if (text === null) return;
    yield { type: "user", message: { role: "user", content: text }, parent_tool_use_id: null };
  }
}

const messages = query({
  prompt: prompts(),
  options: {
    pathToClaudeCodeExecutable: executable,
    model: "claude-sonnet-4-5",
    permissionMode: "bypassPermissions",
    allowDangerouslySkipPermissions: true,
    stderr: (text) => process.stderr.write(text),
  },
})[Symbol.asyncIterator]();

await obey(async (line) => {
  hand(line);
  for (;;) {
    const { value, done } = await messages.next();
    if (done) throw new Error("the conversation ended");
    if (value.type === "result") return value.result ?? value.subtype;
  }
});
hand(null);
while (!(await messages.next()).done);
tell({ host: "agent ended" });
