//! Drowse with a real MCP server, one that goes on after its stdin has ended.
//!
//! Not run where there is no Node, and said so aloud; a failure in CI.

use drowse_tests::agents::RealAgent;
use drowse_tests::cli::{Cli, is};

use crate::real::{NAME, Stage, Tree, idle_after, wait_end};

const WHERE: &str = "tools/call {\"name\": \"where\"}";

/// The process that answered.
#[track_caller]
fn ask_where(cli: &Cli) -> String {
    let said = cli.say(NAME, WHERE);
    assert!(said.contains("pid "), "{said}");
    said
}

/// A server that keeps nothing is released, although only a signal ends it, and another process of
/// it answers the next request.
#[test]
fn a_stateless_server_is_released_and_another_process_answers() {
    let test = "a_stateless_server_is_released_and_another_process_answers";
    let agent = |_: &_| RealAgent::mcp_server(true);
    let Some(stage) = Stage::set(test, agent, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let mut watch = cli.watch(NAME);
    let first = ask_where(cli);
    assert_eq!(ask_where(cli), first);
    let tree = Tree::of(cli);
    assert_eq!(wait_end(&mut watch)["reason"], "idle");
    tree.assert_gone();
    assert_ne!(ask_where(cli), first);
}

/// D18: any other is never released, and that is said.
#[test]
fn a_server_that_may_keep_something_is_not_released() {
    let test = "a_server_that_may_keep_something_is_not_released";
    let agent = |_: &_| RealAgent::mcp_server(false);
    let Some(stage) = Stage::set(test, agent, Some(idle_after())) else {
        return;
    };
    let cli = &stage.cli;
    cli.open(NAME, &[]);
    let first = ask_where(cli);
    let mut watch = cli.watch(NAME);
    assert!(
        watch.is_silent_for(idle_after() * 3),
        "nothing happens to it"
    );
    assert_eq!(ask_where(cli), first);
    let text = cli.ok(&["explain", NAME]);
    assert!(
        text.contains("cannot take a conversation up again"),
        "{text}"
    );
    watch.wait_for("the end of a request", is("turn_ended"));
}
