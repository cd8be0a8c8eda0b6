/** Connections that break, with a real daemon: behaviours 99 to 117 as a program sees them. */

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import {
  Client,
  ClosedError,
  type Connection,
  type Heard,
  RefusedError,
  UnknownOutcomeError,
} from "../src/index.js";
import { open as openWeb } from "../src/transport/web.js";
import { Connection as Raw } from "../src/connection.js";
import { Daemon, Proxy, until } from "./daemon.js";

let daemon: Daemon;
before(async () => {
  daemon = await Daemon.start();
});
after(() => daemon.end());

/** An error that has to come. */
async function failure(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    (value) => assert.fail(`no error but ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
}

/** A turn that goes on until the gate is open. */
function gated(name: string): { text: string; open: () => Promise<void> } {
  const gate = join(daemon.folder, `gate-${name}`);
  return { text: `FAKE:wait ${gate}\nFAKE:say ${name}`, open: () => writeFile(gate, "") };
}

test("prompts are answered, and streams show them as they come", async () => {
  const id = await daemon.open();
  const driver = await daemon.client.connect(id, { role: "drive" });
  assert.equal(driver.welcome.role, "drive");
  assert.ok(driver.isConnected);
  const prompted = await driver.prompt("FAKE:say one");
  assert.equal(prompted.answer, "SAID one (user turns seen: 1)");
  const stream = await driver.promptStream("FAKE:slow 0.3");
  const pieces = [];
  for await (const piece of stream) pieces.push(piece.kind);
  assert.ok(pieces.filter((kind) => kind === "output").length >= 2, pieces.join());
  assert.equal(pieces.at(-1), "ended");
  const whole = await (await driver.promptStream("FAKE:say two")).answer();
  assert.equal(whole.state, "answered");
  assert.equal((await driver.show()).id, id);
  assert.equal((await driver.messages()).length, 3);
  await Promise.all([driver.close(), driver.close()]);
  assert.ok(!driver.isConnected);
  const closed = await failure(driver.show());
  assert.ok(closed instanceof ClosedError && closed.isTerminal);
});

test("a watcher sees all and orders nothing; a second driver is refused or takes over", async () => {
  const id = await daemon.open();
  const watcher = await daemon.client.connect(id);
  const refused = await failure(watcher.prompt("FAKE:say x"));
  assert.ok(refused instanceof RefusedError && refused.code === "not_driver");
  const events = watcher.events();
  assert.equal(((await events.next()).value as Heard).kind, "snapshot");
  const first = await daemon.client.connect(id, { role: "drive", client: "first" });
  const driven = await failure(daemon.client.connect(id, { role: "drive" }));
  assert.ok(driven instanceof RefusedError && driven.code === "driven" && driven.retryable);
  const second = await daemon.client.connect(id, { takeOver: true, client: "second" });
  await until("the end of the first", () => first.closed !== undefined);
  assert.equal(first.closed?.dropReason, "superseded");
  await second.prompt("FAKE:say seen");
  for await (const heard of events) {
    if (heard.kind === "event" && heard.note.event.event === "message_changed") break;
  }
  await Promise.all([watcher.close(), second.close()]);
});

test("after a break the call under way is unknown, later ones wait, and nothing is lost", async () => {
  const proxy = await Proxy.start(daemon);
  const id = await daemon.open();
  const driver = await proxy.client.connect(id, { role: "drive" });
  const { text, open } = gated("bridge");
  const under = driver.prompt(text, { key: "one" });
  const stream = await driver.promptStream("FAKE:say after");
  await until("the turn", async () => (await daemon.client.session(id)).state === "working");
  proxy.open = false;
  proxy.cut();
  await until("the break", () => !driver.isConnected);
  const waits = driver.show();
  proxy.open = true;
  const unknown = await failure(under);
  assert.ok(unknown instanceof UnknownOutcomeError && unknown.code === "connection_resumed");
  assert.ok(unknown.mayHaveRun && !unknown.isTerminal);
  assert.equal((await waits).id, id);
  assert.ok(driver.welcome.resumed);
  await open();
  const again = await driver.prompt(text, { key: "one" });
  assert.ok(again.duplicate);
  assert.match(again.answer, /^SAID bridge /);
  assert.match((await stream.answer()).answer, /^SAID after /);
  assert.equal((await driver.messages()).length, 2, "nothing was said twice");
  await driver.close();
  proxy.end();
});

test("events go on behind the last one that was heard", async () => {
  const proxy = await Proxy.start(daemon);
  const id = await daemon.open();
  const driver = await proxy.client.connect(id, { role: "drive" });
  const events = driver.events();
  const other = await daemon.client.connect(id);
  for (let round = 0; round < 20; round += 1) {
    if (round % 3 === 0) proxy.cut();
    if (round % 3 === 1) proxy.halfClose();
    await driver.prompt(`FAKE:say ${round}`, { key: `${round}` }).catch(async (error: unknown) => {
      assert.ok(error instanceof UnknownOutcomeError, String(error));
      await driver.prompt(`FAKE:say ${round}`, { key: `${round}` });
    });
  }
  const last = (await driver.messages(1))[0]!.id;
  let place = 0;
  const answered: number[] = [];
  for await (const heard of events) {
    if (heard.kind === "snapshot") place = heard.note.seq;
    assert.notEqual(heard.kind, "gap");
    if (heard.kind !== "event") continue;
    assert.equal(heard.note.seq, place + 1, "in order, without a hole");
    place = heard.note.seq;
    const { event } = heard.note;
    if (event.event === "message_changed" && event.state === "answered") {
      answered.push(event.message);
      if (event.message === last) break;
    }
  }
  assert.equal(answered.length, 20);
  assert.equal(new Set(answered).size, 20);
  await Promise.all([driver.close(), other.close()]);
  proxy.end();
});

test("a daemon that is killed and comes back is found again", async () => {
  const own = await Daemon.start();
  const id = await own.open();
  const driver = await own.client.connect(id, { role: "drive" });
  await driver.prompt("FAKE:say one");
  await own.kill();
  await until("the break", () => !driver.isConnected);
  await own.serve();
  // Resume keys die with their daemon: that is said, and a new connection finds the session.
  await until("its end", () => driver.closed !== undefined);
  assert.equal(driver.closed?.dropReason, "resume_refused");
  const again = await own.client.connect(id, { role: "drive" });
  assert.match((await again.prompt("FAKE:say two")).answer, /user turns seen: 2/);
  await again.close();
  await own.end();
});

test("without resuming a break is the end, and only of the connection", async () => {
  const proxy = await Proxy.start(daemon);
  const id = await daemon.open();
  const driver = await proxy.client.connect(id, { role: "drive", resume: false });
  const { text, open } = gated("alone");
  const under = driver.prompt(text);
  await until("the turn", async () => (await daemon.client.session(id)).state === "working");
  proxy.cut();
  const closed = await failure(under);
  assert.ok(closed instanceof ClosedError && closed.dropReason === "transport_lost");
  assert.ok(closed.mayHaveRun);
  await open();
  await until("its answer", async () => {
    const [message] = await daemon.client.messages(id);
    return message?.state === "answered";
  });
  process.env["DROWSE_RESUME"] = "0";
  const by = await proxy.client.connect(id, { role: "drive" });
  delete process.env["DROWSE_RESUME"];
  proxy.cut();
  await until("its end", () => by.closed !== undefined);
  proxy.end();
});

test("bounds: an order's own, the connection's limits, and what is below the daemon's", async () => {
  const proxy = await Proxy.start(daemon);
  const id = await daemon.open();
  const options = { role: "drive", actionTimeoutMs: 100 } as const;
  const driver = await proxy.client.connect(id, options);
  await driver.prompt("FAKE:say one");
  proxy.freeze(true);
  const late = await failure(driver.wake());
  assert.ok(late instanceof UnknownOutcomeError && late.code === "action_timeout");
  assert.equal(driver.closed, undefined);
  proxy.freeze(false);
  assert.equal((await driver.show()).id, id);
  const signal = AbortSignal.timeout(50);
  const given = await failure(driver.prompt("FAKE:silent 2", { signal }));
  assert.equal((given as Error).name, "TimeoutError");
  await driver.close();
  const short = await failure(daemon.client.connect(id, { requestTimeoutMs: 1000 }));
  assert.ok(short instanceof RefusedError && short.code === "invalid");
  const idle = await daemon.client.connect(id, { idleTimeoutMs: 200 });
  await until("the idle limit", () => idle.closed?.code === "idle_timeout");
  const hard = await daemon.client.connect(id, { hardTimeoutMs: 400 });
  const ended = await failure(
    (async () => {
      for await (const _ of hard.events());
    })(),
  );
  assert.ok(ended instanceof ClosedError && ended.code === "hard_timeout");
  proxy.end();
});

test("a connection without events has no streams, and orders all the same", async () => {
  const id = await daemon.open();
  const driver = await daemon.client.connect(id, { role: "drive", events: false });
  const refused = await failure(driver.promptStream("FAKE:say x"));
  assert.ok(refused instanceof RefusedError && refused.code === "invalid");
  await driver.prompt("FAKE:say one");
  await driver.recordOutcome("seen");
  assert.equal((await driver.show()).outcome?.text, "seen");
  await driver.close();
});

test("tokens over TCP: everything, only looking, and nothing", async () => {
  const id = await daemon.open();
  const [all, look] = [await daemon.token(), await daemon.token("token-read")];
  const driver = await new Client({ url: daemon.url, token: all }).connect(id, { role: "drive" });
  await driver.prompt("FAKE:say one");
  const watcher = await new Client({ url: daemon.url, token: look }).connect(id);
  assert.equal((await watcher.show()).id, id);
  const refused = await failure(
    new Client({ url: daemon.url, token: look }).connect(id, { role: "drive" }),
  );
  assert.ok(refused instanceof ClosedError && refused.code === "forbidden", String(refused));
  const nobody = await failure(new Client({ url: daemon.url, token: "no" }).connect(id));
  assert.ok(nobody instanceof ClosedError && nobody.code === "unauthorized", String(nobody));
  await Promise.all([driver.close(), watcher.close()]);
});

test("a browser's WebSocket does the same", { skip: !("WebSocket" in globalThis) }, async () => {
  const id = await daemon.open();
  const transport = openWeb({ url: daemon.url, token: await daemon.token() });
  const driver: Connection = await Raw.open(transport, "web", `/v1/sessions/${id}/ws`, {
    role: "drive",
  });
  assert.match((await driver.prompt("FAKE:say one")).answer, /^SAID one /);
  await driver.close();
  const wrong = openWeb({ url: daemon.url, token: "no" });
  const refused = await failure(Raw.open(wrong, "web", `/v1/sessions/${id}/ws`, {}));
  assert.ok(refused instanceof ClosedError && refused.code === "unauthorized", String(refused));
});
