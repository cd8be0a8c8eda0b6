// A Pi extension for tests: jobs told on Pi's event bus, as an extension of a user would, and
// commands that leave the conversation. In the work folder, a file `veto` refuses a switch, and
// `hooks.log` gets the hooks that ran, in their order.
'use strict';
const { spawn } = require('node:child_process');
const { appendFileSync, existsSync } = require('node:fs');

const HOOKS = [
  'session_start', 'session_shutdown', 'before_agent_start', 'agent_start', 'turn_start',
  'tool_call', 'tool_result', 'turn_end', 'agent_end',
];

module.exports = (pi) => {
  for (const hook of HOOKS) {
    pi.on(hook, () => appendFileSync('hooks.log', `${hook}\n`));
  }
  pi.on('session_before_switch', () => (existsSync('veto') ? { cancel: true } : undefined));

  pi.registerCommand('job', {
    description: 'run a shell command in the background',
    handler: async (args) => {
      const [job, ...words] = args.split(' ');
      const text = words.join(' ');
      const task = spawn('bash', ['-c', text], { stdio: 'ignore', detached: true });
      pi.events.emit('drowse:background', { job, text });
      task.on('exit', () => pi.events.emit('drowse:background', { job }));
    },
  });
  pi.registerCommand('afresh', {
    description: 'leave this conversation for a new one',
    handler: async (_args, ctx) => void (await ctx.newSession()),
  });
  pi.registerCommand('anew', {
    description: 'load the extensions again',
    handler: async (_args, ctx) => ctx.reload(),
  });
};
