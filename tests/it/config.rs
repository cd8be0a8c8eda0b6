//! Configuration: bad ones are refused with their place, good ones apply at once.

use std::fs;
use std::time::Duration;

use drowse_messages::SessionState;
use drowse_tests::{TestDaemon, daemon, wait_until};

/// Behaviours 1 to 3, 9, D22: refused at start with 78, naming file, key and value.
#[test]
fn a_bad_configuration_is_refused_with_file_key_and_value() {
    let daemon = daemon!("bad").ready();
    let file = daemon.path("config.toml").display().to_string();
    let bad = [
        ("[session]\nidle_afer = \"1m\"", "idle_afer", "1m"),
        ("[session]\nidle_after = \"soon\"", "idle_after", "soon"),
        ("[session]\nidle_after = \"-5m\"", "idle_after", "-5m"),
        ("[session]\nidle_after = 30", "idle_after", "30"),
        ("[session]\nidle_after = nan", "idle_after", "nan"),
        (
            "[session]\nidle_after = \"99999999999999999999d\"",
            "idle_after",
            "99999999999999999999d",
        ),
        ("[session]\nidle_after = true", "idle_after", "true"),
        ("[session]\neof_grace = \"off\"", "eof_grace", "off"),
        (
            "[session]\nidle_after = \"2h\"\nhard_limit = \"1h\"",
            "hard_limit",
            "2h",
        ),
        ("[agents.x]\ncommand = [\"x\"]", "agents.x.protocol", ""),
        (
            "[agents.x]\ncommand = [\"x\"]\nprotocol = \"smoke\"",
            "protocol",
            "smoke",
        ),
        ("[server]\nlisten = \"0.0.0.0:80\"", "listen", "0.0.0.0:80"),
        ("[sesion]\nidle_after = \"1m\"", "sesion", ""),
        ("[session\n", "TOML", ""),
    ];
    for (text, key, value) in bad {
        daemon.write_config(text);
        for verb in [["serve"].as_slice(), &["config", "check"]] {
            let output = daemon.run(verb);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(78), "{text}: {said}");
            for part in [&*file, key, value] {
                assert!(
                    said.contains(part),
                    "{part:?} is not named for {text}: {said}"
                );
            }
        }
    }
    assert!(
        !daemon.state_dir().join("drowse.db").exists(),
        "nothing was begun"
    );
}

/// Behaviours 4, 5: a bad variable is refused with its name; a blank one is not set.
#[test]
fn a_bad_variable_is_refused_with_its_name() {
    let daemon = daemon!("variable").ready();
    let with = |value: &str| {
        let mut command = daemon.command(&["config", "check"]);
        command
            .env("DROWSE_SESSION__IDLE_AFTER", value)
            .output()
            .unwrap()
    };
    let output = with("banana");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(
        said.contains("DROWSE_SESSION__IDLE_AFTER") && said.contains("banana"),
        "{said}"
    );
    for fine in ["", " ", "90s"] {
        assert_eq!(with(fine).status.code(), Some(0), "{fine:?}");
    }
}

/// D22: a configuration that cannot be read, or is none, is said to be so.
#[test]
fn an_unreadable_configuration_is_refused() {
    let daemon = daemon!("unreadable").ready();
    let file = daemon.path("config.toml");
    for make in [
        (|file| fs::create_dir(file).unwrap()) as fn(&std::path::Path),
        |file| fs::write(file, b"[session]\nidle_after = \"\xff\"").unwrap(),
        |_| {},
    ] {
        drop(fs::remove_file(&file));
        make(&file);
        let output = daemon.run(&["serve"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{said}");
        assert!(said.contains(file.to_str().unwrap()), "{said}");
        drop(fs::remove_dir(&file));
    }
}

/// Behaviour 7: a shorter limit releases who has been quiet for longer within a second; a longer one
/// lets others be.
#[test]
fn a_reload_applies_to_sessions_at_rest_at_once() {
    let mut daemon = daemon!("reload").limit("idle_after", "1h").start();
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say hello");
    let quiet = |daemon: &TestDaemon| daemon.report(&id).awake.and_then(|awake| awake.idle_ms);
    wait_until("a quiet session", Duration::from_secs(5), || {
        quiet(&daemon).filter(|ms| *ms > 150)
    });
    daemon.rewrite_limits(&[("idle_after", "100ms")]);
    daemon.hang_up();
    wait_until("its release", Duration::from_secs(1), || {
        (daemon.report(&id).state != SessionState::Resting).then_some(())
    });
    daemon.wait_state(&id, SessionState::Released);

    daemon.rewrite_limits(&[("idle_after", "1h")]);
    daemon.hang_up();
    let other = daemon.open("fake");
    let deadline = |daemon: &TestDaemon| {
        let awake = daemon.report(&other).awake;
        awake.and_then(|awake| awake.releases_in_ms)
    };
    wait_until("the long limit", Duration::from_secs(5), || {
        daemon.say(&other, "FAKE:say hello");
        deadline(&daemon).filter(|ms| *ms > 1_000_000)
    });
    daemon.rewrite_limits(&[("idle_after", "off")]);
    daemon.hang_up();
    wait_until("no limit", Duration::from_secs(5), || {
        (daemon.report(&other).state == SessionState::Resting && deadline(&daemon).is_none())
            .then_some(())
    });
}

/// Behaviour 7: a bad new file keeps the old values, and says so.
#[test]
fn a_bad_new_configuration_keeps_the_old_one() {
    let daemon = daemon!("keeps").start();
    daemon.write_config("[session]\nidle_after = \"whenever\"\n");
    daemon.hang_up();
    wait_until("word of it", Duration::from_secs(5), || {
        daemon.log_text().contains("whenever").then_some(())
    });
    let id = daemon.open("fake");
    daemon.say(&id, "FAKE:say hello");
    daemon.wait_state(&id, SessionState::Released);
}
