// An MCP server over stdio that goes on after its stdin has ended: only a signal ends it.
'use strict';
const { appendFileSync } = require('node:fs');
const { createInterface } = require('node:readline');

const note = (what) => appendFileSync(process.env.MCP_LOG, `${what} ${process.pid}\n`);

const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'stubborn', version: '1' },
  }),
  'tools/list': () => ({
    tools: [{ name: 'where', description: 'tells its pid', inputSchema: { type: 'object' } }],
  }),
  'tools/call': () => {
    note('call');
    return { content: [{ type: 'text', text: `pid ${process.pid}` }] };
  },
};

note('start');
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  if (line.trim() === '') return;
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = (answers[method] ?? (() => ({})))(params ?? {});
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
});
lines.on('close', () => note('eof'));
setInterval(() => {}, 60_000);
