//! The document is what the code does: its types, paths, methods, parameters and statuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use actix_web::ResponseError;
use drowse_messages::SessionState;

use super::*;
use crate::http::problem;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(path).expect("sources are text")
}

/// Types change by way of the vocabulary alone. To take a change over, put what is said here into
/// `types.json`.
#[test]
fn the_types_are_those_of_the_vocabulary() {
    let made = made::schemas();
    let kept: Value = serde_json::from_str(TYPES).expect("types.json is JSON");
    let text = serde_json::to_string_pretty(&made).expect("a value is JSON");
    // Into a file as well: it is long.
    let place = std::env::temp_dir().join("drowse-openapi-types.json");
    if made != kept {
        drop(fs::write(&place, &text));
    }
    assert!(made == kept, "now, also in {}:\n{text}", place.display());
    let states = SessionState::ALL.map(SessionState::code);
    assert_eq!(kept["SessionState"]["enum"], json!(states));
}

/// Every reference leads to a type, and every type is used.
#[test]
fn nothing_refers_to_what_is_not_there() {
    let document = document();
    let text = document.to_string();
    let used = text.split("#/components/schemas/").skip(1);
    let used: BTreeSet<&str> = used.filter_map(|rest| rest.split('"').next()).collect();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let there: BTreeSet<&str> = schemas.keys().map(String::as_str).collect();
    assert_eq!(used, there);
}

#[test]
fn paths_and_queries_are_those_of_the_routes() {
    let routes = read("src/http/routes.rs");
    let quoted = routes.split('"').skip(1).step_by(2);
    let of_routes: BTreeSet<&str> = quoted
        .filter(|text| {
            let other = ["/livez", "/readyz", "/metrics", "/openapi.json"];
            text.starts_with("/v1/") && !text.ends_with("{}") || other.contains(text)
        })
        .collect();
    let documented: BTreeSet<&str> = OPERATIONS.iter().map(|it| it.path).collect();
    assert_eq!(documented, of_routes);
    let handlers = routes + &read("src/http/inbox.rs");
    for operation in &OPERATIONS {
        let Some((of, names)) = operation.query else {
            continue;
        };
        let (_, rest) = handlers.split_once(&format!("struct {of} {{")).unwrap();
        let fields = rest.split('}').next().unwrap_or_default().lines();
        let fields: BTreeSet<&str> = fields
            .filter_map(|line| Some(line.trim().split_once(':')?.0))
            .collect();
        assert_eq!(
            names.iter().copied().collect::<BTreeSet<_>>(),
            fields,
            "{of}"
        );
    }
}

/// The guide's table has the same methods.
#[test]
fn methods_are_those_of_the_guide() {
    let guide = read("../docs/guide.md");
    let (_, http) = guide.split_once("\n## HTTP\n").unwrap();
    let mut in_guide = BTreeSet::new();
    for row in http.split("\n## ").next().unwrap_or_default().lines() {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (Some(path), Some(methods)) = (cells.next(), cells.next()) else {
            continue;
        };
        if path.starts_with("`/") {
            let path = path.trim_matches('`').to_owned();
            in_guide.extend(methods.split(", ").map(|it| (path.clone(), it.to_owned())));
        }
    }
    let documented: BTreeSet<(String, String)> = OPERATIONS
        .iter()
        .map(|it| (it.path.to_owned(), it.method.to_uppercase()))
        .collect();
    assert_eq!(documented, in_guide);
}

/// The guide lists each code with its status; the endpoint's own are asked themselves.
#[test]
fn each_code_has_its_status() {
    let guide = read("../docs/guide.md");
    let (_, problems) = guide.split_once("\n## Problems\n").unwrap();
    let rows = problems.split("\n## ").next().unwrap_or_default();
    let mut in_guide: Vec<(&str, u16)> = Vec::new();
    for row in rows.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (code, rest) = row.split_once("` | ").unwrap();
        let status = rest.split(" |").next().unwrap_or_default();
        in_guide.push((code, status.parse().unwrap()));
    }
    assert_eq!(in_guide, STATUSES);
    for kind in [
        problem::UNAUTHORIZED,
        problem::FORBIDDEN,
        problem::NO_SUCH_PATH,
        problem::BODY_TOO_LARGE,
        problem::BODY_TOO_SLOW,
        problem::TOO_MANY_STREAMS,
        problem::NOT_READY,
    ] {
        let problem = problem::Problem::new(kind, "");
        let text = problem.to_string();
        let code = text.split(':').next().unwrap_or_default();
        let status = problem.status_code().as_u16();
        assert!(STATUSES.contains(&(code, status)), "{code}");
    }
    for operation in &OPERATIONS {
        for code in operation.problems {
            assert!(STATUSES.iter().any(|(known, _)| known == code), "{code}");
        }
    }
}

#[test]
fn operations_have_names_of_their_own() {
    let ids: BTreeSet<&str> = OPERATIONS.iter().map(|it| it.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len());
    for name in [
        "session", "ask", "message", "limit", "state", "agent", "after",
    ] {
        assert!(!parameter_about(name).is_empty(), "{name}");
    }
}
