//! What outlives a release, as it is configured (behaviour 146).

use drowse_messages::KeepRule;

use super::*;

fn rules(config: &Config, agent: &str, cwd: &str) -> Vec<String> {
    let none = LimitOverrides::default();
    let keep = config.limits(&name(agent), Path::new(cwd), &none).keep;
    keep.iter().map(KeepRule::to_string).collect()
}

/// Rules add up from the general to the special, and none is there twice.
#[test]
fn keep_rules_add_up() {
    let config = Written::new(
        "[session]\nkeep = [\"exe:postgres\"]\n[agents.claude]\nkeep = [\"listen:3000\", \
         \"exe:postgres\"]\n[projects.\"/w\"]\nkeep = [\"listen:8080\"]\n\
         [projects.\"/w/none\"]\nkeep = []\n",
    )
    .load();
    assert_eq!(
        rules(&config, "claude", "/w/x"),
        ["listen:3000", "listen:8080", "exe:postgres"]
    );
    assert_eq!(rules(&config, "pi", "/w/none"), ["exe:postgres"]);
    assert_eq!(rules(&config, "pi", "/"), ["exe:postgres"]);
}

/// A later source replaces the whole list of its key; text of a variable is written as in a file.
#[test]
fn a_variable_replaces_the_list_of_its_key() {
    let written = Written::new("[session]\nkeep = [\"exe:postgres\"]\n");
    let written = written.variable("DROWSE_SESSION__KEEP", "[\"listen:3000\"]");
    assert_eq!(rules(&written.load(), "pi", "/"), ["listen:3000"]);
    let bad = Written::new("").variable("DROWSE_SESSION__KEEP", "listen:3000");
    assert_eq!(
        bad.refusal(),
        "environment variable DROWSE_SESSION__KEEP: session.keep = \"listen:3000\": is text; \
         expected an array such as [\"listen:3000\", \"exe:postgres\"]"
    );
}

/// A bad entry is refused with file, key and value, wherever it stands.
#[test]
fn a_bad_rule_is_refused_by_name() {
    for (scope, key) in [
        ("[session]", "session"),
        ("[agents.claude]", "agents.claude"),
        ("[projects.\"/w\"]", "projects.\"/w\""),
    ] {
        for (value, detail) in [
            (
                "[\"listen:http\"]",
                "\"listen:http\" is no keep rule; write listen:PORT, or exe:NAME without slashes",
            ),
            (
                "[\"exe:/usr/bin/node\"]",
                "\"exe:/usr/bin/node\" is no keep rule; write listen:PORT, or exe:NAME without \
                 slashes",
            ),
            (
                "[3000]",
                "has a number in it; expected an array such as [\"listen:3000\", \"exe:postgres\"]",
            ),
            (
                "[\"pid:4711@7\"]",
                "names a process by its number; expected an array such as [\"listen:3000\", \
                 \"exe:postgres\"]",
            ),
        ] {
            assert_eq!(
                Written::new(format!("{scope}\nkeep = {value}\n")).refusal(),
                format!("config.toml:2: {key}.keep = {value}: {detail}")
            );
        }
    }
    let many = format!("[session]\nkeep = [{}]\n", "\"exe:x\",".repeat(65));
    assert!(
        Written::new(many)
            .refusal()
            .ends_with("has more than 64 rules")
    );
}

/// D53: the rules in force are shown, and can be read again.
#[test]
fn keep_rules_are_shown() {
    let config = Written::new("[session]\nkeep = [\"listen:3000\"]\n[agents.claude]\n").load();
    let shown = config.to_toml("");
    assert!(shown.contains("keep = [\"listen:3000\"]\n"), "{shown}");
    assert_eq!(Written::new(&shown).load().to_toml(""), shown);
}
