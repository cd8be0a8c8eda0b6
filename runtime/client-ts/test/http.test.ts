/** The HTTP half, over the Unix socket and TCP, by Node and by what browsers have. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client, RefusedError, TransportError } from "../src/index.js";
import { open as openWeb } from "../src/transport/web.js";
import { Daemon, until } from "./daemon.js";

let daemon: Daemon;
before(async () => {
  daemon = await Daemon.start();
});
after(() => daemon.end());

test("a session's life, order by order", async () => {
  const { client } = daemon;
  assert.ok(await client.live());
  const { id } = await client.open({ agent: "fake", cwd: daemon.folder, name: "life" });
  assert.equal((await client.session("life")).state, "new");
  const sent = await client.send("life", "FAKE:say one", { key: "k" });
  assert.equal((await client.send("life", "FAKE:say one", { key: "k" })).duplicate, true);
  await until("an answer", async () => (await client.message(sent.message)).state === "answered");
  const [message] = await client.messages("life");
  assert.equal(message?.answer, "SAID one (user turns seen: 1)");
  const hold = await client.takeHold(id, { ttl: "20m", why: "a test" });
  const held = await client.release(id).catch((error: unknown) => error);
  assert.ok(held instanceof RefusedError);
  assert.equal(held.code, "held");
  assert.equal(held.status, 409);
  assert.ok(held.retryable && !held.mayHaveRun);
  assert.match(held.heldBy.join(), /a test/);
  assert.equal((await client.holds(id)).length, 1);
  await client.liftHold(id, hold.id);
  await client.recordOutcome(id, "done");
  assert.equal((await client.session(id)).outcome?.text, "done");
  await client.release(id);
  await until("its release", async () => (await client.session(id)).state === "released");
  assert.ok((await client.log(id)).some((event) => event.event === "released"));
  await client.remove(id);
  const gone = await client.session(id).catch((error: unknown) => error);
  assert.ok(gone instanceof RefusedError && gone.code === "no_such_session");
});

test("a message is followed to its end, and events to whoever listens", async () => {
  const { client } = daemon;
  const id = await daemon.open();
  const kinds: string[] = [];
  let text = "";
  for await (const event of client.sendStreaming(id, "FAKE:say one")) {
    kinds.push(event.event);
    if (event.event === "message_changed") text = event.text;
  }
  assert.equal(text, "SAID one (user turns seen: 1)");
  assert.equal(kinds.at(-1), "message_changed");
  assert.ok(kinds.includes("output"));
  for await (const event of client.events({ session: id })) {
    assert.equal(event.event, "snapshot");
    break;
  }
});

test("what waits can be taken back, and urgent messages go first", async () => {
  const { client } = daemon;
  const id = await daemon.open();
  const first = await client.send(id, "FAKE:silent 5");
  await until("its turn", async () => (await client.message(first.message)).state === "delivered");
  const later = await client.send(id, "FAKE:say later");
  const back = await client.send(id, "FAKE:say never");
  assert.equal((await client.cancel(back.message)).state, "cancelled");
  const next = await client.send(id, { text: "FAKE:say next", priority: "now" });
  const refused = await client.cancel(first.message).catch((error: unknown) => error);
  assert.ok(refused instanceof RefusedError && refused.code === "not_queued");
  await until("the last", async () => (await client.message(later.message)).state === "answered");
  assert.equal((await client.message(first.message)).answer, "interrupted");
  assert.match((await client.message(next.message)).answer, /^SAID next /);
});

test("over TCP a token is needed, by Node and by browsers", async () => {
  const token = await daemon.token();
  const client = new Client({ url: daemon.url, token });
  assert.ok((await client.status()).version);
  const wrong = new Client({ url: daemon.url, token: "no" });
  const error = await wrong.status().catch((it: unknown) => it);
  assert.ok(error instanceof RefusedError && error.code === "unauthorized", String(error));
  const web = openWeb({ url: daemon.url, token });
  const signal = AbortSignal.timeout(10_000);
  const request = { method: "GET", path: "/v1/status", headers: {}, body: undefined, signal };
  const reply = await web.request(request);
  assert.equal(reply.status, 200);
  let bytes = 0;
  for await (const chunk of reply.body) bytes += chunk.length;
  assert.ok(bytes > 2);
  assert.throws(() => openWeb({ socketPath: "/x" }), TypeError);
});

test("where nobody listens nothing was done, and giving up is the caller's own error", async () => {
  const nobody = new Client({ socketPath: `${daemon.folder}/nobody.sock` });
  const error = await nobody.send("x", "y").catch((it: unknown) => it);
  assert.ok(error instanceof TransportError && !error.mayHaveRun && error.retryable);
  const reason = new Error("enough");
  const signal = AbortSignal.abort(reason);
  assert.equal(await daemon.client.status({ signal }).catch((it: unknown) => it), reason);
  assert.throws(() => daemon.client.session(""), TypeError);
});
