//! `config check` and `config show`: the configuration as the daemon would read it now. They ask
//! no daemon.

use crate::adapters::Adapters;
use crate::chain::chain;
use crate::cli::args::{ConfigVerb, Globals};
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::config::{Config, Sources};
use crate::exit::Exit;

pub(crate) fn run(
    globals: &Globals,
    verb: ConfigVerb,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let protocols = Adapters::shipped().protocols();
    let sources = Sources::of_process(globals.config.as_deref(), Vec::new(), protocols);
    let config =
        Config::load(&sources).map_err(|error| Failure::new(Exit::Config, chain(&error)))?;
    let text = config.to_toml(&std::env::var("PATH").unwrap_or_default());
    match verb {
        ConfigVerb::Check if console.json => console.object(&serde_json::json!({"ok": true}))?,
        ConfigVerb::Check => console.tell("the configuration is right")?,
        ConfigVerb::Show if console.json => {
            let object: serde_json::Value =
                toml::from_str(&text).map_err(|error| Failure::new(Exit::Error, chain(&error)))?;
            console.object(&object)?;
        }
        ConfigVerb::Show => console.out.write_all(text.as_bytes())?,
    }
    console.out.flush()?;
    Ok(Exit::Ok)
}
