// A host of an ACP agent, as an editor is one: the client of the official library.
//
// node acp.mjs FOLDER-OF-NODE-MODULES CMD ARGS...
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { obey, tell } from "./lines.mjs";

const [modules, command, ...args] = process.argv.slice(2);
const found = createRequire(modules + "/").resolve("@agentclientprotocol/sdk");
const acp = await import(pathToFileURL(found));

const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
agent.on("exit", (code, signal) => tell({ host: "agent ended", code, signal }));
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

let text = "";
const app = acp
  .client({ name: "test-host" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    const allow = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: allow.optionId } };
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    const { update } = params;
    if (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text") {
      text += update.content.text;
    }
  });

await app.connectWith(stream, async (cx) => {
  await cx.request(acp.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await cx.request(acp.methods.agent.session.new, {
    cwd: process.cwd(),
    mcpServers: [],
  });
  await obey(async (line) => {
    text = "";
    const prompt = [{ type: "text", text: line }];
    const { stopReason } = await cx.request(acp.methods.agent.session.prompt, { sessionId, prompt });
    return `${text} [${stopReason}]`;
  });
});
agent.stdin.end();
