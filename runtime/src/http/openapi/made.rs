//! Makes the schemas from the text of the vocabulary: each type that a body holds, as serde writes
//! it.
//!
//! Reads no more Rust than the vocabulary uses: plain structs and enums, one attribute on a line.
//! What it does not know it refuses, so that a new form is noticed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Bodies; what they hold follows.
const ROOTS: [&str; 21] = [
    "AskReply",
    "Event",
    "KeptReport",
    "NewHold",
    "NewKeep",
    "NewMessage",
    "NewOutcome",
    "NewSession",
    "NewTask",
    "ProblemBody",
    "RestartSession",
    "RestartedSession",
    "Restarting",
    "SavedMessage",
    "Sent",
    "SessionPage",
    "SessionReport",
    "StatusReport",
    "StopSession",
    "TakenHold",
    "WakeSession",
];

/// What the types themselves do not say.
fn bounds(name: &str) -> Option<Value> {
    Some(match name {
        "NewMessage.text" => json!({ "minLength": 1 }),
        "NewOutcome.text" => json!({ "minLength": 1, "maxLength": 4096 }),
        "NewKeep.pid" => json!({ "minimum": 2, "maximum": i32::MAX }),
        "NewKeep.listen" => json!({ "minimum": 1, "maximum": u16::MAX }),
        _ => return None,
    })
}

/// Types with a form of their own.
fn written(name: &str) -> Option<Value> {
    Some(match name {
        "SessionId" => json!({ "type": "string", "pattern": "^[0-9a-hjkmnp-tv-z]{12}$" }),
        "Name" => json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$" }),
        "KeepRule" => json!({ "type": "string", "pattern": "^(listen|exe|pid):" }),
        _ => return None,
    })
}

/// All of them, by name.
pub(super) fn schemas() -> Value {
    let source = source();
    let mut made = BTreeMap::new();
    let mut wanted: Vec<String> = ROOTS.iter().map(ToString::to_string).collect();
    while let Some(name) = wanted.pop() {
        if made.contains_key(&name) {
            continue;
        }
        let item = Item::find(&source, &name);
        let mut schema = written(&name).unwrap_or_else(|| item.schema(&name, &mut wanted));
        schema["description"] = item.about.into();
        made.insert(name, schema);
    }
    json!(made)
}

fn source() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../messages/src");
    let files = fs::read_dir(folder).expect("the vocabulary is beside us");
    let files = files.map(|entry| entry.expect("the folder can be read").path());
    files
        .map(|path| fs::read_to_string(path).expect("sources are text"))
        .collect()
}

/// A struct or an enum in the source.
struct Item {
    is_enum: bool,
    about: String,
    attributes: String,
    /// Between the braces; of `struct X(pub u64)` what is between the brackets.
    body: String,
}

/// A field, or a variant.
#[derive(Default)]
struct Part {
    name: String,
    about: String,
    attributes: String,
    /// Of a field.
    kind: String,
    /// Of a variant with fields.
    fields: Vec<Part>,
}

/// What stands before an item or a part, taken line by line.
#[derive(Default)]
struct Before {
    about: Vec<String>,
    attributes: String,
}

impl Before {
    /// True when the line belongs to it.
    fn take(&mut self, line: &str) -> bool {
        if let Some(words) = line.strip_prefix("///") {
            let words = words.trim().replace("[`", "`").replace("`]", "`");
            let words = words.replace("crate::", "");
            self.about.push(words);
        } else if line.starts_with("#[") {
            self.attributes.push_str(line);
        } else {
            return false;
        }
        true
    }

    fn about(&mut self) -> String {
        std::mem::take(&mut self.about).join(" ").trim().to_owned()
    }

    fn attributes(&mut self) -> String {
        std::mem::take(&mut self.attributes)
    }
}

impl Item {
    fn find(source: &str, name: &str) -> Self {
        let mut before = Before::default();
        let mut lines = source.lines();
        while let Some(line) = lines.next() {
            if before.take(line) {
                continue;
            }
            // Derives of more than one line: `#[derive(` .. `)]`.
            if before.attributes.ends_with("#[derive(")
                && (line.starts_with("    ") || line == ")]")
            {
                continue;
            }
            for (keyword, is_enum) in [("pub struct ", false), ("pub enum ", true)] {
                let rest = line.strip_prefix(keyword);
                let Some(rest) = rest.and_then(|rest| rest.strip_prefix(name)) else {
                    continue;
                };
                let body = match rest.trim_end().strip_prefix('(') {
                    Some(inner) => inner.trim_end_matches(");").to_owned(),
                    None if rest == " {" => {
                        let body = lines.take_while(|line| *line != "}");
                        body.collect::<Vec<_>>().join("\n")
                    }
                    None => break,
                };
                return Self {
                    is_enum,
                    about: before.about(),
                    attributes: before.attributes(),
                    body,
                };
            }
            before = Before::default();
        }
        panic!("no type {name} in messages/src");
    }

    fn schema(&self, name: &str, wanted: &mut Vec<String>) -> Value {
        if self.is_enum {
            return self.enumeration(wanted);
        }
        if self.attributes.contains("serde(transparent)") {
            return shape(self.body.trim_start_matches("pub "), wanted);
        }
        let heard = self.attributes.contains("deny_unknown_fields");
        let all_default = self.attributes.contains("serde(default");
        let fields = parts(&self.body, 4);
        let optional = |field: &Part| {
            if heard {
                all_default || field.attributes.contains("default")
            } else {
                field.attributes.contains("skip_serializing_if")
            }
        };
        let mut schema = object(name, &fields, optional, wanted);
        if heard {
            schema["additionalProperties"] = false.into();
        }
        let flat = fields
            .iter()
            .find(|field| field.attributes.contains("serde(flatten)"));
        match flat {
            Some(field) => json!({ "allOf": [schema, shape(&field.kind, wanted)] }),
            None => schema,
        }
    }

    fn enumeration(&self, wanted: &mut Vec<String>) -> Value {
        assert!(self.attributes.contains("rename_all = \"snake_case\""));
        let tag = quoted(&self.attributes, "tag = ");
        let content = quoted(&self.attributes, "content = ");
        let variants = parts(&self.body, 4);
        let plain = |part: &Part| part.kind.is_empty() && part.fields.is_empty();
        if tag.is_none() && variants.iter().all(plain) {
            let names: Vec<String> = variants.iter().map(|part| snake(&part.name)).collect();
            return json!({ "type": "string", "enum": names });
        }
        let forms: Vec<Value> = variants
            .iter()
            .map(|part| {
                let mut form = match (&tag, &content) {
                    (None, _) => part.outside(wanted),
                    (Some(tag), None) => part.inside(tag, wanted),
                    (Some(tag), Some(content)) => part.beside(tag, content, wanted),
                };
                form["description"] = part.about.clone().into();
                form
            })
            .collect();
        json!({ "oneOf": forms })
    }
}

impl Part {
    /// `"idle"`, `{"code": 1}`, `{"crashed": {"status": null}}`.
    fn outside(&self, wanted: &mut Vec<String>) -> Value {
        let name = snake(&self.name);
        let inner = if self.fields.is_empty() {
            if self.kind.is_empty() {
                return json!({ "const": name });
            }
            shape(&self.kind, wanted)
        } else {
            object("", &self.fields, |_| false, wanted)
        };
        json!({ "type": "object", "properties": { &name: inner }, "required": [name],
                "additionalProperties": false })
    }

    /// `{"event": "ready", "resumed": true}`.
    fn inside(&self, tag: &str, wanted: &mut Vec<String>) -> Value {
        assert!(self.kind.is_empty(), "{}", self.name);
        let mut form = object("", &self.fields, |_| false, wanted);
        form["properties"][tag] = json!({ "const": snake(&self.name) });
        let required = form["required"].as_array_mut().expect("objects have it");
        required.push(tag.into());
        form
    }

    /// `{"kind": "client", "name": "cli"}`.
    fn beside(&self, tag: &str, content: &str, wanted: &mut Vec<String>) -> Value {
        assert!(self.fields.is_empty(), "{}", self.name);
        let mut form = self.inside_without_kind(tag);
        if !self.kind.is_empty() {
            form["properties"][content] = shape(&self.kind, wanted);
            let required = form["required"].as_array_mut().expect("objects have it");
            required.push(content.into());
        }
        form
    }

    fn inside_without_kind(&self, tag: &str) -> Value {
        json!({ "type": "object", "properties": { tag: { "const": snake(&self.name) } },
                "required": [tag] })
    }
}

fn object(
    of: &str,
    fields: &[Part],
    optional: impl Fn(&Part) -> bool,
    wanted: &mut Vec<String>,
) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        if field.attributes.contains("serde(flatten)") {
            continue;
        }
        let name = quoted(&field.attributes, "rename = ").unwrap_or_else(|| field.name.clone());
        let mut schema = shape(&field.kind, wanted);
        if let Some(Value::Object(more)) = bounds(&format!("{of}.{name}")) {
            let schema = schema.as_object_mut().expect("a schema is an object");
            schema.extend(more);
        }
        schema["description"] = field.about.clone().into();
        if !optional(field) {
            required.push(name.clone());
        }
        properties.insert(name, schema);
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The schema of a field's type.
fn shape(kind: &str, wanted: &mut Vec<String>) -> Value {
    let inner = |outer: &str| kind.strip_prefix(outer)?.strip_suffix('>');
    if let Some(kind) = inner("Box<") {
        return shape(kind, wanted);
    }
    if let Some(kind) = inner("Option<") {
        let mut schema = shape(kind, wanted);
        if let Some(simple) = schema.get("type").and_then(Value::as_str) {
            let either = json!([simple, "null"]);
            schema["type"] = either;
            return schema;
        }
        return json!({ "anyOf": [schema, { "type": "null" }] });
    }
    if let Some(kind) = inner("Vec<") {
        return json!({ "type": "array", "items": shape(kind, wanted) });
    }
    if let Some(kind) = inner("BTreeMap<String, ") {
        return json!({ "type": "object", "additionalProperties": shape(kind, wanted) });
    }
    match kind {
        "String" | "PathBuf" => json!({ "type": "string" }),
        "char" => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
        "bool" => json!({ "type": "boolean" }),
        "u16" => json!({ "type": "integer", "minimum": 0, "maximum": u16::MAX }),
        "u32" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        "u64" | "usize" => json!({ "type": "integer", "format": "uint64", "minimum": 0,
                                   "maximum": u64::MAX }),
        "i32" => json!({ "type": "integer", "format": "int32" }),
        "i64" => json!({ "type": "integer", "format": "int64" }),
        name => {
            assert!(
                name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric),
                "no schema for a type like {name}"
            );
            wanted.push(name.to_owned());
            json!({ "$ref": format!("#/components/schemas/{name}") })
        }
    }
}

/// The fields or variants in a body whose lines begin with so many spaces.
fn parts(body: &str, indent: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut before = Before::default();
    let mut lines = body.lines();
    while let Some(line) = lines.next() {
        let line = &line[line.len().min(indent)..];
        if line.is_empty() || before.take(line) {
            continue;
        }
        let mut part = Part {
            about: before.about(),
            attributes: before.attributes(),
            ..Part::default()
        };
        let line = line.strip_prefix("pub ").unwrap_or(line);
        if let Some(name) = line.strip_suffix(" {") {
            let end = format!("{}}},", " ".repeat(indent));
            let inner = lines.by_ref().take_while(|line| *line != end);
            let inner: Vec<&str> = inner.collect();
            part.name = name.to_owned();
            part.fields = self::parts(&inner.join("\n"), indent + 4);
        } else if let Some((name, kind)) = line.split_once(": ") {
            part.name = name.to_owned();
            part.kind = kind.trim_end_matches(',').to_owned();
        } else if let Some((name, kind)) = line.split_once('(') {
            part.name = name.to_owned();
            part.kind = kind.trim_end_matches("),").to_owned();
        } else {
            part.name = line.trim_end_matches(',').to_owned();
        }
        parts.push(part);
    }
    parts
}

/// The text in quotes that follows.
fn quoted(text: &str, before: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.strip_prefix('"')?.split_once('"')?.0.to_owned())
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (place, c) in name.chars().enumerate() {
        if c.is_uppercase() && place > 0 {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}
