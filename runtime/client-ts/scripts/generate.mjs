// Writes src/types.ts from what the daemon itself says of its words: the schema of the socket and
// the types of the OpenAPI document. `--check` writes nothing and fails where they differ.

import { readFileSync, writeFileSync } from "node:fs";

const from = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const http = from("../../src/http/openapi/types.json");
const socket = from("../../../docs/socket.schema.json").$defs;
const target = new URL("../src/types.ts", import.meta.url);

/** What the socket's schema leaves to the OpenAPI document, and the codes newer daemons may add. */
const REPLACED = {
  "EventNote.event": "Event",
  "SnapshotNote.report": "SessionReport",
};
/** Not needed: envelopes are the transport's affair. */
const LEFT_OUT = new Set(["Request", "Response", "Notification"]);

function type(schema, place) {
  if (REPLACED[place]) return REPLACED[place];
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((it) => JSON.stringify(it)).join(" | ");
  const several = schema.oneOf ?? schema.anyOf;
  if (several) return several.map((it) => type(it, place)).join(" | ");
  if (schema.allOf) return schema.allOf.map((it) => `(${type(it, place)})`).join(" & ");
  if (Array.isArray(schema.type)) {
    return schema.type.map((it) => type({ ...schema, type: it }, place)).join(" | ");
  }
  switch (schema.type) {
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    case "integer":
    case "number":
      return "number";
    case "array":
      return `Array<${type(schema.items ?? {}, place)}>`;
    case "object":
      return object(schema, place);
    default:
      return "unknown";
  }
}

function object(schema, place) {
  const properties = Object.entries(schema.properties ?? {});
  if (properties.length === 0) {
    const values = schema.additionalProperties;
    return values && typeof values === "object"
      ? `Record<string, ${type(values, place)}>`
      : "Record<string, unknown>";
  }
  const required = new Set(schema.required ?? []);
  const lines = properties.map(([name, about]) => {
    const optional = required.has(name) ? "" : "?";
    return `${comment(about.description, "  ")}  ${name}${optional}: ${type(about, `${place}.${name}`)};\n`;
  });
  return `{\n${lines.join("")}}`;
}

function comment(text, indent) {
  if (!text) return "";
  if (!text.includes("\n")) return `${indent}/** ${text} */\n`;
  const lines = text.split("\n").map((line) => `${indent} * ${line}`.trimEnd());
  return `${indent}/**\n${lines.join("\n")}\n${indent} */\n`;
}

const known = { ...socket, ...http };
const parts = Object.keys(known)
  .filter((name) => !LEFT_OUT.has(name))
  .sort()
  .map((name) => `${comment(known[name].description, "")}export type ${name} = ${type(known[name], name)};\n`);
const text = `// Made by scripts/generate.mjs from docs/socket.schema.json and the OpenAPI types. Do not edit.

${parts.join("\n")}`;

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("src/types.ts is not what the schemas say: npm run generate");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}
