// Drowse's extension for Pi: says when a conversation begins and ends, and which background jobs
// run, so that Drowse keeps Pi while they do and forgets the jobs of a conversation that was left.
//
// Give it to Pi as the first extension:  pi -e /path/to/drowse.js
// Then its marks stand before whatever other extensions say at the same moment. It registers no
// tool and changes nothing that passes through it.
//
// Other extensions tell of a job through Pi's event bus, with a text while it runs and without one
// when it is over:
//
//   pi.events.emit('drowse:background', { job: 'tests', text: 'npm test' });
//   pi.events.emit('drowse:background', { job: 'tests' });
//
// or by a status of their own: ctx.ui.setStatus('drowse:background:tests', 'npm test').
'use strict';

const SESSION = 'drowse:session';
const BACKGROUND = 'drowse:background';

module.exports = (pi) => {
  // Of the conversation that is open; none before the first one and between two.
  let ui;

  pi.on('session_start', (_event, ctx) => {
    ui = ctx.ui;
    ui.setStatus(SESSION, 'start');
  });

  // A switch that somebody vetoed never comes here: its work goes on.
  pi.on('session_shutdown', (_event, ctx) => {
    ui = undefined;
    ctx.ui.setStatus(SESSION, 'shutdown');
  });

  pi.events.on(BACKGROUND, ({ job, text } = {}) => {
    ui?.setStatus(job ? `${BACKGROUND}:${job}` : BACKGROUND, text || undefined);
  });
};
