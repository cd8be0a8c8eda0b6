//! The messages of the protocol that matter, taken apart no further than needed.
//!
//! Fed by the observer and the relay. Every field may be absent or of another shape.

use serde::Serialize;

use super::super::wire::parts;

parts!(
    /// Parameters of whatever concerns one request, one resource, or says how far something is.
    Params { request_id = "requestId", uri, message }
);

/// The revision of the protocol that is asked for; a server that speaks another says so, and what
/// is relied on is the same in all of them.
const VERSION: &str = "2025-06-18";

/// Parameters of `initialize`: Drowse offers servers nothing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialize {
    protocol_version: &'static str,
    capabilities: Empty,
    client_info: ClientInfo,
}

#[derive(Debug, Serialize)]
struct ClientInfo {
    name: &'static str,
    title: &'static str,
    version: &'static str,
}

/// `{}`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Empty {}

/// Parameters of `notifications/cancelled`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cancelled<'a> {
    pub(super) request_id: &'a super::super::rpc::Id,
    pub(super) reason: &'static str,
}

impl Initialize {
    pub(super) fn ours() -> Self {
        Self {
            protocol_version: VERSION,
            capabilities: Empty {},
            client_info: ClientInfo {
                name: "drowse",
                title: "Drowse",
                version: env!("CARGO_PKG_VERSION"),
            },
        }
    }
}
