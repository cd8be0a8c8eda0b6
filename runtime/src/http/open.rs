//! From what a client asks for to a session that can be opened: the agent, its program, its
//! folder, its environment and its limits.
//!
//! Everything that can be known to fail is refused here, with what to change, rather than at the
//! first message. Reads the file system, changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drowse_messages::{Name, NewSession, OpenSession, Recipe, Refusal, SessionId};

use crate::config::Config;

/// Makes the order.
pub(super) fn open_session(config: &Config, new: NewSession) -> Result<OpenSession, Refusal> {
    check_name(new.name.as_ref())?;
    check_texts(&new)?;
    let cwd = folder(&new.cwd)?;
    let mut env = if new.env.is_empty() {
        config.base_env().clone()
    } else {
        new.env
    };
    let callers_path = env.get("PATH").cloned().unwrap_or_default();
    let Some(mut agent) = config.agent(&new.agent, &callers_path, &cwd) else {
        let known = config
            .agents(&callers_path)
            .into_iter()
            .map(|(name, _)| name.to_string());
        return Err(Refusal::UnknownAgent {
            agent: new.agent.to_string(),
            known: known.collect(),
        });
    };
    env.append(&mut agent.env);
    // The agent's own PATH, which may be configured, is the one its program is looked up in.
    let path = env.get("PATH").map_or("", String::as_str);
    if path != callers_path {
        agent.found_at = config
            .agent(&new.agent, path, &cwd)
            .and_then(|agent| agent.found_at);
    }
    if agent.found_at.is_none() {
        return Err(not_found(&agent.command, path));
    }
    let limits = Config::parse_overrides(&new.limits)
        .map_err(|problem| invalid(&format!("limits.{}", problem.key), problem.about_value()))?;
    let merged = config.limits(&new.agent, &cwd, &limits);
    Config::check_limits(&merged).map_err(|detail| invalid("limits", detail))?;
    let argv = agent.command.into_iter().chain(new.args).collect();
    let recipe = Recipe {
        agent: new.agent,
        protocol: agent.protocol,
        argv,
        cwd,
        env,
    };
    Ok(OpenSession {
        id: random_id()?,
        name: new.name,
        recipe,
        limits,
    })
}

fn random_id() -> Result<SessionId, Refusal> {
    let bits = getrandom::u64().map_err(|error| Refusal::StoreFailed {
        detail: format!("no random number for its id: {error}"),
    })?;
    Ok(SessionId::from_random(bits))
}

fn invalid(field: &str, detail: impl Into<String>) -> Refusal {
    Refusal::Invalid {
        field: field.to_owned(),
        detail: detail.into(),
    }
}

/// A name that reads like an id would hide the session that has it.
fn check_name(name: Option<&Name>) -> Result<(), Refusal> {
    match name {
        Some(name) if name.as_str().parse::<SessionId>().is_ok() => Err(invalid(
            "name",
            format!("\"{name}\" reads like the id of a session"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// What the system cannot pass to a program. The texts may be secrets, so they are not repeated.
fn check_texts(new: &NewSession) -> Result<(), Refusal> {
    if new.args.iter().any(|argument| argument.contains('\0')) {
        return Err(invalid("args", "one contains a NUL"));
    }
    check_env(&new.env)
}

/// The same for an environment alone.
pub(super) fn check_env(env: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let wrong = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if env.iter().any(wrong) {
        return Err(invalid(
            "env",
            "one has no name, \"=\" in its name, or a NUL",
        ));
    }
    Ok(())
}

/// The folder as the agent itself will see it, without links, so that the limits of a project
/// hold however its folder was reached.
fn folder(cwd: &Path) -> Result<PathBuf, Refusal> {
    let wrong = |why: &str| invalid("cwd", format!("{:?} {why}", cwd.display().to_string()));
    if !cwd.is_absolute() {
        return Err(wrong("is not an absolute path"));
    }
    let real = cwd
        .canonicalize()
        .map_err(|error| wrong(&format!("cannot be used: {error}")))?;
    if real.is_dir() {
        Ok(real)
    } else {
        Err(wrong("is not a folder"))
    }
}

fn not_found(command: &[String], path: &str) -> Refusal {
    let program = command.first().map_or("", String::as_str);
    let detail = if program.contains('/') {
        format!("{program:?} is not a program that can be executed")
    } else if path.is_empty() {
        format!("no program {program:?}: the environment has no PATH")
    } else {
        format!("no program {program:?} on PATH (searched {path})")
    };
    invalid("agent", detail)
}
