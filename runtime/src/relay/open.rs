//! From what a shim asks for to a session that can be opened.
//!
//! Fed by `server.rs`. The command line is the host's own: nothing of the configuration is put
//! into it, only its limits apply. What can be known to fail is refused here.

use drowse_messages::{Name, OpenSession, Recipe, Refusal, SessionId};

use super::frame::OpenRelay;
use super::guess;
use crate::config::{Config, find_program};

fn invalid(field: &str, detail: impl Into<String>) -> Refusal {
    Refusal::Invalid {
        field: field.to_owned(),
        detail: detail.into(),
    }
}

/// Makes the order.
pub(super) fn open_session(config: &Config, open: OpenRelay) -> Result<OpenSession, Refusal> {
    if let Some(name) = &open.name
        && name.as_str().parse::<SessionId>().is_ok()
    {
        let detail = format!("\"{name}\" reads like the id of a session");
        return Err(invalid("name", detail));
    }
    let path = open.env.get("PATH").map_or("", String::as_str);
    let program = open.argv.first().map_or("", String::as_str);
    let found = find_program(program, path, &open.cwd);
    let Some(found) = found else {
        return Err(invalid(
            "command",
            format!("there is no program {program:?}"),
        ));
    };
    let real = found.canonicalize().ok();
    let real = real.as_deref().and_then(|real| real.to_str());
    let agent = open.agent.unwrap_or_else(|| guess::agent(real, &open.argv));
    let is_spoken = |protocol: &str| {
        let name = protocol.parse::<Name>();
        name.is_ok_and(|name| config.traits(&agent, &name).is_some())
    };
    let protocol = match open.protocol {
        Some(protocol) if config.traits(&agent, &protocol).is_none() => {
            let detail = format!("there is no protocol {:?}", protocol.as_str());
            return Err(invalid("protocol", detail));
        }
        Some(protocol) => protocol,
        None => guess::protocol(agent.as_str(), &open.argv, is_spoken),
    };
    let limits = Config::parse_overrides(&open.limits)
        .map_err(|problem| invalid(&format!("limits.{}", problem.key), problem.about_value()))?;
    let merged = config.limits(&agent, &open.cwd, &limits);
    Config::check_limits(&merged).map_err(|detail| invalid("limits", detail))?;
    let recipe = Recipe {
        agent,
        protocol,
        argv: open.argv,
        cwd: open.cwd,
        env: open.env,
    };
    let bits = getrandom::u64().map_err(|error| Refusal::StoreFailed {
        detail: format!("no random number for its id: {error}"),
    })?;
    Ok(OpenSession {
        id: SessionId::from_random(bits),
        name: open.name,
        recipe,
        limits,
    })
}
