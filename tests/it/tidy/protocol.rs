//! The protocol's document and schema say what the types say.
//!
//! Examples are read as what they claim to be; lists are compared with the enums; the schema's
//! properties are compared with what serde writes of a value in which nothing is left out.

use std::collections::BTreeSet;

use drowse_messages::{
    Answer, AnswerCall, CloseWhy, DropReason, Failure, FailureCode, GapNote, Hello, MessageCall,
    MessageId, MessageState, MessagesCall, Method, Notification, OutcomeCall, Position, Priority,
    Prompt, Prompted, Role, SavedMessage, SessionId, SocketBounds, StopCall, Subscribe, WakeCall,
    WarningNote, Welcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::read;

const DOCUMENT: &str = "docs/protocol.md";

/// The part below a heading, up to the next one of its level or above.
fn below(heading: &str) -> String {
    let text = read(DOCUMENT);
    let (_, rest) = text
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("{DOCUMENT} has no {heading:?}"));
    let level = heading.split(' ').next().unwrap_or_default();
    let end = if level == "###" {
        vec!["\n### ", "\n## "]
    } else {
        vec!["\n## "]
    };
    let ends = end.iter().filter_map(|end| rest.find(end));
    rest[..ends.min().unwrap_or(rest.len())].to_owned()
}

/// The examples in a part.
fn examples(part: &str) -> Vec<Value> {
    let blocks = part.split("```json\n").skip(1);
    blocks
        .map(|rest| {
            let block = rest.split("```").next().unwrap_or_default();
            serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"))
        })
        .collect()
}

/// The rows of the first table in a part, as their cells without backticks.
fn rows(part: &str) -> Vec<Vec<String>> {
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    rows.map(|row| row.trim_end_matches('|').split(" | ").map(cell).collect())
        .collect()
}

#[track_caller]
fn is<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

#[test]
fn every_method_has_an_example_that_is_one() {
    let listed: Vec<String> = rows(&below("## Methods"))
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    let all = Method::ALL.map(|method| method.code().to_owned());
    assert_eq!(listed, all);
    for method in Method::ALL {
        let examples = examples(&below(&format!("### `{}`", method.code())));
        let request = &examples[0];
        assert_eq!(request["jsonrpc"], "2.0");
        assert_eq!(is::<Method>(&request["method"]), method);
        let params = request.get("params").cloned().unwrap_or_else(|| json!({}));
        match method {
            Method::Hello => {
                is::<Hello>(&params);
                is::<Welcome>(&examples[1]["result"]);
            }
            Method::Prompt => {
                is::<Prompt>(&params);
                is::<Prompted>(&examples[1]["result"]);
            }
            Method::Answer => drop(is::<AnswerCall>(&params)),
            Method::Wake => _ = is::<WakeCall>(&params),
            Method::Stop => _ = is::<StopCall>(&params),
            Method::Messages => _ = is::<MessagesCall>(&params),
            Method::Message | Method::Retry => _ = is::<MessageCall>(&params),
            Method::Cancel => {
                is::<MessageCall>(&params);
                is::<SavedMessage>(&examples[1]["result"]);
            }
            Method::RecordOutcome => drop(is::<OutcomeCall>(&params)),
            Method::Subscribe => {
                is::<Subscribe>(&params);
                is::<Position>(&examples[1]["result"]);
            }
            Method::Interrupt | Method::Release | Method::Show | Method::Ping | Method::Close => {
                assert_eq!(params, json!({}));
            }
        }
    }
}

#[test]
fn every_notification_has_an_example_that_is_one() {
    for row in rows(&below("## Notifications")) {
        let part = below("## Notifications");
        let heading = format!("### `{}`", row[0]);
        let (_, rest) = part
            .split_once(&heading)
            .unwrap_or_else(|| panic!("no {heading}"));
        let example = &examples(rest)[0];
        assert_eq!(example["method"], row[0].as_str());
        is::<Notification>(example);
    }
    let failure = &examples(&below("## Failures"))[0];
    is::<Failure>(&failure["error"]["data"]);
}

#[test]
fn the_lists_are_those_of_the_code() {
    let closes: Vec<(String, String)> = rows(&below("## Close codes"))
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let all = CloseWhy::ALL.map(|why| (why.code().to_string(), why.reason().to_owned()));
    assert_eq!(closes, all);
    let failures: Vec<String> = rows(&below("## Failures"))
        .into_iter()
        .map(|row| row[..3].join(" "))
        .collect();
    let all: Vec<String> = FailureCode::ALL
        .iter()
        .map(|code| {
            let ends = json!(code.ends());
            let ends = ends.as_str().unwrap_or_default();
            format!("{} {ends} {}", code.code(), code.class().code())
        })
        .collect();
    assert_eq!(failures, all);
    let reasons: Vec<String> = rows(&below("## Drop reasons"))
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(
        reasons,
        DropReason::ALL.map(|reason| reason.code().to_owned())
    );
}

/// What HTTP can refuse is in the list as well.
#[test]
fn the_codes_of_refusals_are_failures() {
    let text = read("messages/src/reason.rs");
    let (_, rest) = text.split_once("impl Refusal {").expect("it has codes");
    let part = rest.split("impl fmt::Display").next().unwrap_or_default();
    let snake =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    for code in part.split('"').skip(1).step_by(2).filter(snake) {
        assert_ne!(FailureCode::from_code(code), FailureCode::Unknown, "{code}");
    }
}

#[track_caller]
fn properties(schema: &Value, name: &str, whole: &impl Serialize) {
    let keys = |value: &Value| -> BTreeSet<String> {
        value
            .as_object()
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default()
    };
    let written = serde_json::to_value(whole).expect("plain data");
    assert_eq!(
        keys(&schema["$defs"][name]["properties"]),
        keys(&written),
        "{name}"
    );
}

#[test]
fn the_schema_has_every_field() {
    let schema: Value = serde_json::from_str(&read("docs/socket.schema.json")).expect("JSON");
    let position = Position::default();
    let hello = Hello {
        client: Some(String::new()),
        token: Some(String::new()),
        resume: Some(String::new()),
        keep: Some(true),
        idle_timeout_ms: Some(1),
        hard_timeout_ms: Some(1),
        ..Hello::default()
    };
    properties(&schema, "Hello", &hello);
    let session = SessionId::from_random(1);
    let welcome = Welcome::new(session, 1, String::new(), position.clone());
    properties(&schema, "Welcome", &welcome);
    properties(&schema, "SocketBounds", &SocketBounds::default());
    properties(&schema, "Position", &position);
    let prompt = Prompt {
        key: Some(String::new()),
        priority: Priority::Next,
        ..Prompt::default()
    };
    properties(&schema, "Prompt", &prompt);
    let prompted = Prompted {
        message: MessageId(1),
        duplicate: false,
        state: MessageState::Queued,
        answer: String::new(),
    };
    properties(&schema, "Prompted", &prompted);
    let answer = AnswerCall {
        id: String::new(),
        answer: Answer::Allow,
    };
    properties(&schema, "AnswerCall", &answer);
    properties(&schema, "OutcomeCall", &OutcomeCall::default());
    properties(&schema, "WakeCall", &WakeCall::default());
    properties(&schema, "StopCall", &StopCall::default());
    properties(&schema, "MessagesCall", &MessagesCall { limit: Some(1) });
    properties(
        &schema,
        "MessageCall",
        &MessageCall {
            message: MessageId(1),
        },
    );
    properties(
        &schema,
        "Subscribe",
        &Subscribe {
            after: Some(position.clone()),
        },
    );
    properties(
        &schema,
        "GapNote",
        &GapNote {
            at: position,
            missed: Some(1),
        },
    );
    let warning = WarningNote {
        limit: String::new(),
        in_ms: 1,
    };
    properties(&schema, "WarningNote", &warning);
}

#[test]
fn the_schema_has_every_code() {
    let schema: Value = serde_json::from_str(&read("docs/socket.schema.json")).expect("JSON");
    let mut failure = Failure::new(FailureCode::Held, "");
    failure.drop_reason = Some(DropReason::TransportLost);
    failure.held_by = vec![String::new()];
    failure.retry_in_ms = Some(1);
    properties(&schema, "Failure", &failure);
    let names = |value: &Value| value["enum"].as_array().cloned().unwrap_or_default();
    assert_eq!(
        names(&schema["$defs"]["Method"]),
        Method::ALL.map(|it| json!(it))
    );
    assert_eq!(
        names(&schema["$defs"]["Role"]),
        [Role::Watch, Role::Drive].map(|it| json!(it))
    );
    assert_eq!(
        names(&schema["$defs"]["Priority"]),
        Priority::ALL.map(|it| json!(it))
    );
    assert_eq!(
        names(&schema["$defs"]["MessageState"]),
        MessageState::ALL.map(|it| json!(it))
    );
    let codes: Vec<Value> = FailureCode::ALL.iter().map(|it| json!(it)).collect();
    assert_eq!(names(&schema["$defs"]["FailureCode"]), codes);
}
