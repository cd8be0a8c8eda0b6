/** A real daemon with the fake agent, in a folder of its own; and a way to it that can be broken. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { type Server, type Socket, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client } from "../src/index.js";

/** 30 s until something has to be so: the machine may be busy. */
const CEILING_MS = 30_000;

function needed(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} says where the program is; see CONTRIBUTING.md`);
  return value;
}

/** Waits for a fact. */
export async function until(what: string, fact: () => Promise<boolean> | boolean): Promise<void> {
  const end = Date.now() + CEILING_MS;
  while (!(await fact())) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

export class Daemon {
  #child: ChildProcess | undefined;
  readonly folder: string;
  readonly url: string;

  private constructor(folder: string, port: number) {
    this.folder = folder;
    this.url = `http://127.0.0.1:${port}`;
  }

  static async start(limits = 'idle_after = "1h"'): Promise<Daemon> {
    const folder = await mkdtemp(join(tmpdir(), "drowse-ts-"));
    const port = await freePort();
    const command = JSON.stringify([needed("DROWSE_TEST_FAKE"), "--dialect", "claude"]);
    await writeFile(
      join(folder, "config.toml"),
      `[session]\n${limits}\n[server]\nlisten = "127.0.0.1:${port}"\n` +
        `[agents.fake]\nprotocol = "claude"\ncommand = ${command}\n`,
    );
    const daemon = new Daemon(folder, port);
    await daemon.serve();
    return daemon;
  }

  get socketPath(): string {
    return join(this.folder, "state", "drowse.sock");
  }

  get client(): Client {
    return new Client({ socketPath: this.socketPath });
  }

  async token(file = "token"): Promise<string> {
    return (await readFile(join(this.folder, "state", file), "utf8")).trim();
  }

  async serve(): Promise<void> {
    const args = ["--state-dir", join(this.folder, "state"), "--config", "config.toml", "serve"];
    const env = { ...process.env, HOME: this.folder, FAKE_AGENT_HOME: join(this.folder, "fake") };
    this.#child = spawn(needed("DROWSE_TEST_PROGRAM"), args, {
      cwd: this.folder,
      env,
      stdio: "ignore",
    });
    const ready = () => this.client.ready().catch(() => false);
    await until("the daemon", ready);
  }

  /** Opens a session and gives its id. */
  async open(): Promise<string> {
    return (await this.client.open({ agent: "fake", cwd: this.folder })).id;
  }

  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Ends sessions and daemon, and removes the folder. */
  async end(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.folder, { recursive: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child) return;
    const over = once(child, "exit");
    child.kill(signal);
    await over;
  }
}

/** Stands between a client and the daemon, and lets its connections suffer. */
export class Proxy {
  readonly socketPath: string;
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();
  #frozen = false;
  /** False: nobody gets through. */
  open = true;

  private constructor(daemon: Daemon) {
    this.socketPath = join(daemon.folder, "proxy.sock");
    this.#server = createServer({ allowHalfOpen: true }, (near) => this.#join(near, daemon));
  }

  static async start(daemon: Daemon): Promise<Proxy> {
    const proxy = new Proxy(daemon);
    proxy.#server.listen(proxy.socketPath);
    await once(proxy.#server, "listening");
    return proxy;
  }

  get client(): Client {
    return new Client({ socketPath: this.socketPath });
  }

  get connections(): number {
    return this.#pairs.size;
  }

  /** Ends all connections at once. */
  cut(): void {
    for (const [near, far] of this.#pairs) {
      near.destroy();
      far.destroy();
    }
  }

  /** Nothing passes any more, and nobody is told. */
  freeze(frozen: boolean): void {
    this.#frozen = frozen;
    for (const pair of this.#pairs) {
      for (const end of pair) frozen ? end.pause() : end.resume();
    }
  }

  /** The client hears the end of what the daemon says, and may go on. */
  halfClose(): void {
    for (const [near] of this.#pairs) near.end();
  }

  end(): void {
    this.cut();
    this.#server.close();
  }

  #join(near: Socket, daemon: Daemon): void {
    if (!this.open) {
      near.destroy();
      return;
    }
    const far = connect({ path: daemon.socketPath, allowHalfOpen: true });
    const pair: [Socket, Socket] = [near, far];
    this.#pairs.add(pair);
    const over = () => {
      this.#pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const [from, to] of [pair, [far, near] as const]) {
      from.on("data", (bytes) => to.write(bytes));
      from.on("end", () => to.end());
      from.on("error", () => undefined);
      from.on("close", over);
      if (this.#frozen) from.pause();
    }
  }
}
