//! Reads what clients send: bodies and query strings, bounded in size and time.
//!
//! Invariant: a refusal says the place in the request and what was expected there.

use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::web::{self, Payload};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;

use super::Bounds;
use super::problem::{BODY_TOO_LARGE, BODY_TOO_SLOW, Problem};

/// Reads a whole body.
pub(super) async fn read(
    headers: &HeaderMap,
    mut payload: Payload,
    bounds: &Bounds,
) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        let limit = bounds.body_bytes_max;
        Problem::new(BODY_TOO_LARGE, format!("a body has at most {limit} bytes"))
    };
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: usize| bytes > bounds.body_bytes_max) {
        return Err(too_large());
    }
    let collect = async {
        let mut body = Vec::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|error| Problem::invalid("body", error.to_string()))?;
            if body.len() + chunk.len() > bounds.body_bytes_max {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let patience = bounds.body_timeout;
    tokio::time::timeout(patience, collect)
        .await
        .unwrap_or_else(|_| {
            let seconds = patience.as_secs_f32();
            Err(Problem::new(
                BODY_TOO_SLOW,
                format!("the body did not arrive within {seconds} s"),
            ))
        })
}

/// Understands a body as JSON.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let place = error.path().to_string();
        // A question mark is a place inside something that broke off.
        let place = place.trim_end_matches(['?', '.']);
        let field = if place.is_empty() { "body" } else { place };
        Problem::invalid(field, error.inner().to_string())
    })?;
    reader
        .end()
        .map_err(|error| Problem::invalid("body", error.to_string()))?;
    Ok(value)
}

/// Like [`json`], for a body that may be missing.
pub(super) fn json_or_default<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Problem> {
    if body.trim_ascii().is_empty() {
        Ok(T::default())
    } else {
        json(body)
    }
}

/// Understands a query string.
pub(super) fn query<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let parsed = web::Query::<T>::from_query(text);
    parsed
        .map(web::Query::into_inner)
        .map_err(|error| Problem::invalid("query", error.to_string()))
}
