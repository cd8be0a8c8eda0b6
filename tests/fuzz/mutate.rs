//! Ways to spoil a line.
//!
//! Fed by the lives in `main.rs`. Some keep it well-formed, because what is not is thrown away
//! early.

use drowse_tests::rng::Rng;
use serde_json::{Map, Value, json};

/// 64 KiB: longer than anything an adapter keeps of a text.
const LONG: usize = 64 * 1024;
/// 200 deep: more than a parser that recurses is allowed to follow.
const DEEP: usize = 200;
/// Values are replaced this far down.
const DOWN_MAX: usize = 8;

/// The line, spoilt in one of several ways, perhaps with a part of another.
pub(crate) fn mutated(rng: &mut Rng, line: &str, other: &str) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    match rng.below(8) {
        0 => bytes.truncate(index(rng, bytes.len() + 1)),
        1 => flip(rng, &mut bytes),
        2 => {
            let (from, to) = (index(rng, bytes.len() + 1), index(rng, other.len() + 1));
            bytes.truncate(from);
            bytes.extend(&other.as_bytes()[to..]);
        }
        3 => bytes = noise(rng),
        4 => bytes = "[".repeat(DEEP).into_bytes(),
        _ => {
            if let Ok(mut whole) = serde_json::from_str::<Value>(line) {
                bend(rng, &mut whole, other);
                bytes = whole.to_string().into_bytes();
            }
        }
    }
    bytes.retain(|&byte| byte != b'\n');
    bytes
}

fn flip(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..=rng.below(4) {
        let at = index(rng, bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << rng.below(8);
        }
    }
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let byte = |rng: &mut Rng| u8::try_from(rng.below(256)).expect("a byte");
    (0..rng.below(200)).map(|_| byte(rng)).collect()
}

/// Replaces one value somewhere in it, or takes it out, or doubles it.
fn bend(rng: &mut Rng, whole: &mut Value, other: &str) {
    let mut part = whole;
    for _ in 0..rng.below(DOWN_MAX as u64) {
        let length = match &*part {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        };
        if length == 0 {
            break;
        }
        let at = index(rng, length);
        part = match part {
            Value::Array(items) => &mut items[at],
            Value::Object(fields) => fields.values_mut().nth(at).expect("within its length"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => break,
        };
    }
    if let Value::Object(fields) = part
        && rng.chance(500)
    {
        return drop_or_add(rng, fields, other);
    }
    *part = odd(rng, other);
}

fn drop_or_add(rng: &mut Rng, fields: &mut Map<String, Value>, other: &str) {
    let at = index(rng, fields.len());
    let name = fields.keys().nth(at).cloned().unwrap_or_default();
    let taken = fields.remove(&name);
    if rng.chance(300) {
        fields.insert("type".to_owned(), taken.unwrap_or_else(|| odd(rng, other)));
    }
}

fn odd(rng: &mut Rng, other: &str) -> Value {
    match rng.below(12) {
        0 => Value::Null,
        1 => json!(u64::MAX),
        2 => json!(i64::MIN),
        3 => json!(1e300),
        4 => json!(""),
        5 => json!("x".repeat(LONG)),
        6 => json!("\u{0}\u{1b}[31m\u{2028}\u{202e}\n\r\u{fffd}"),
        7 => json!([]),
        8 => json!({}),
        9 => json!(true),
        10 => serde_json::from_str(other).unwrap_or_default(),
        _ => json!([[[[{ "type": "result" }]]], 7, "drowse-1"]),
    }
}

fn index(rng: &mut Rng, length: usize) -> usize {
    usize::try_from(rng.below(length as u64)).expect("less than a length")
}
