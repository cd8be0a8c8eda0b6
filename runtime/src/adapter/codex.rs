//! The `codex` protocol: Codex's app server, JSON-RPC lines without the member that says so.
//!
//! The plan adds the subcommand, and turns options that Codex reads only for its own screen into
//! the settings the app server reads. Nothing in it names a conversation: the observer
//! (`codex/observer.rs`) starts a thread or takes one up again once the handshake is done. The
//! relay for hosts that speak the protocol themselves is in `codex/relay.rs`.

use drowse_messages::{Conversation, Name, Recipe, WallTime};

use super::argv::{Opt, add, has, without};
use super::{Adapter, Observer, Plan, Relay, Seen};

mod asks;
mod lines;
mod observer;
mod relay;
mod tasks;
#[cfg(test)]
mod tests;
mod threads;
mod turn;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codex;

const SUBCOMMAND: &str = "app-server";

/// Options of Codex's own screen, and the setting that each stands for. The app server takes
/// them, and goes by none of them.
const SCREEN_OPTIONS: [(Opt, &str); 3] = [
    (Opt::with_value(&["--model", "-m"]), "model"),
    (Opt::with_value(&["--sandbox", "-s"]), "sandbox_mode"),
    (
        Opt::with_value(&["--ask-for-approval", "-a"]),
        "approval_policy",
    ),
];

/// Both of sandbox and approvals in one.
const UNGUARDED: Opt = Opt::flag(&["--dangerously-bypass-approvals-and-sandbox", "--yolo"]);

impl Adapter for Codex {
    fn protocol(&self) -> Name {
        "codex".parse().expect("\"codex\" is a name")
    }

    fn known_agents(&self) -> Vec<(Name, Vec<String>)> {
        vec![(self.protocol(), vec!["codex".to_owned()])]
    }

    fn can_resume(&self) -> bool {
        true
    }

    fn reports_tasks(&self) -> bool {
        true
    }

    fn steers(&self) -> bool {
        true
    }

    fn plan(&self, recipe: &Recipe, _: Option<&Conversation>, _: &str) -> Plan {
        let mut argv = recipe.argv.clone();
        for (option, setting) in &SCREEN_OPTIONS {
            let Some(value) = option.value_in(&argv) else {
                continue;
            };
            argv = without(&argv, std::slice::from_ref(option));
            set(&mut argv, setting, &value);
        }
        if has(&argv, &UNGUARDED) {
            argv = without(&argv, &[UNGUARDED]);
            set(&mut argv, "sandbox_mode", "danger-full-access");
            set(&mut argv, "approval_policy", "never");
        }
        if !argv.iter().any(|word| word == SUBCOMMAND) {
            add(&mut argv, &[SUBCOMMAND]);
        }
        Plan {
            argv,
            env: recipe.env.clone(),
        }
    }

    fn observe(&self, conversation: Option<&Conversation>, _: &str) -> Box<dyn Observer> {
        Box::new(observer::CodexObserver::new(conversation))
    }

    fn adopt(&self, checkpoint: &[u8], _: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        let (observer, seen) = observer::CodexObserver::adopt(checkpoint)?;
        Some((Box::new(observer), seen))
    }

    fn relay(&self, memory: Option<&[u8]>) -> Option<Box<dyn Relay>> {
        Some(Box::new(relay::CodexRelay::new(memory)))
    }
}

/// Adds a setting. Quoted: a name that reads like a number or a date in TOML stays a name.
fn set(argv: &mut Vec<String>, setting: &str, value: &str) {
    let quoted = serde_json::to_string(value).expect("text always becomes JSON");
    add(argv, &["-c", &format!("{setting}={quoted}")]);
}
