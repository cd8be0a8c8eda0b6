// A host of an MCP server: the client of the official library. A line is the text that the server's
// tool is to say again.
//
// node mcp.mjs FOLDER-OF-NODE-MODULES CMD ARGS...
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { obey, tell } from "./lines.mjs";

const [modules, command, ...args] = process.argv.slice(2);
const require = createRequire(modules + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");

const transport = new StdioClientTransport({ command, args, env: { ...process.env } });
transport.onclose = () => tell({ host: "agent ended" });
const client = new Client({ name: "test-host", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
if (!tools.some((tool) => tool.name === "echo")) throw new Error("the server has no tool echo");
await obey(async (message) => {
  const { content } = await client.callTool({ name: "echo", arguments: { message } });
  return content[0].text;
});
await client.close();
