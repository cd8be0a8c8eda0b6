//! A daemon with two extensions of the worst kind: `stubborn STATE-DIR CONFIG`. One blocks its
//! thread for ever, one panics at the first event it hears.

use std::path::PathBuf;
use std::process::ExitCode;

use actix::{Actor, Context, Handler};
use drowse::messages::Event;
use drowse::paths::{PathSources, Paths};
use drowse::{Daemon, ServeOptions};

/// Would hear events if its thread ever came back.
struct Deaf;

/// Panics when it hears one.
struct Bomb;

impl Actor for Deaf {
    type Context = Context<Self>;
}

impl Actor for Bomb {
    type Context = Context<Self>;
}

impl Handler<Event> for Deaf {
    type Result = ();

    fn handle(&mut self, _: Event, _: &mut Context<Self>) {}
}

impl Handler<Event> for Bomb {
    type Result = ();

    fn handle(&mut self, _: Event, _: &mut Context<Self>) {
        panic!("this extension panics on purpose");
    }
}

fn main() -> ExitCode {
    if let Some(code) = drowse::keeper_if_asked() {
        return code;
    }
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (state_dir, config) = (args.next(), args.next());
    let sources = PathSources {
        state_dir,
        ..PathSources::default()
    };
    let paths = Paths::resolve(&sources).expect("a short path");
    Daemon::builder(ServeOptions {
        config,
        paths,
        listen: None,
    })
    .extend("blocks", |cx| {
        cx.subscribe(&Deaf.start());
        loop {
            std::thread::park();
        }
    })
    .extend("panics", |cx| cx.subscribe(&Bomb.start()))
    .run()
}
