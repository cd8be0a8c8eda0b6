// A Pi extension for tests: a tool that starts a command in the background and keeps the roster
// up to date by status keys, and a gate that asks before a shell command that contains GATE.
'use strict';
const { spawn } = require('node:child_process');

const parameters = {
  type: 'object',
  properties: { command: { type: 'string' } },
  required: ['command'],
};

module.exports = (pi) => {
  let started = 0;

  pi.registerTool({
    name: 'bg_start',
    label: 'background',
    description: 'start a shell command in the background',
    parameters,
    async execute(_id, { command }, _signal, _update, { ui }) {
      started += 1;
      const key = `drowse:background:${started}`;
      const task = spawn('bash', ['-c', command], { stdio: 'ignore', detached: true });
      ui.setStatus(key, command);
      task.on('exit', (code) => {
        ui.setStatus(key, undefined);
        const content = `background task ${key} ended with ${code}`;
        pi.sendMessage({ customType: 'background', content, display: true }, { triggerTurn: true });
      });
      return { content: [{ type: 'text', text: `started pid ${task.pid}` }], details: {} };
    },
  });

  pi.on('tool_call', async (event, { ui }) => {
    const gated = event.toolName === 'bash' && event.input.command.includes('GATE');
    if (gated && !(await ui.confirm('Allow?', event.input.command))) {
      return { block: true, reason: 'denied' };
    }
    return undefined;
  });
};
