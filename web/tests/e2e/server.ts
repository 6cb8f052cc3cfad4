/** The real server on a free port, with a data directory of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

/** A server under test. */
export interface RealServer {
  url: string;
  stop: () => Promise<void>;
}

/** Where it says that it serves: it takes the port itself, so nobody comes between. */
function greeting(child: ChildProcess, said: () => string): Promise<string> {
  return new Promise((done, fail) => {
    let out = '';
    child.stdout?.on('data', (piece) => {
      out = (out + piece).slice(0, 4000);
      const found = out.match(/ serves (http\S+)\n/);
      if (found) done(found[1]);
    });
    child.once('exit', (code) => fail(new Error(`the server ended with ${code}: ${said()}`)));
  });
}

async function ready(url: string, child: ChildProcess, said: () => string): Promise<void> {
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}: ${said()}`);
    const answer = await fetch(`${url}/readyz`).catch(() => null);
    if (answer?.ok) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`the server did not get ready in 30 s: ${said()}`);
}

/** The program under test: `TRUEGAUGE_BIN`, or the release build. */
export function program(): string {
  return process.env.TRUEGAUGE_BIN ?? resolve(import.meta.dirname, '../../../target/release/truegauge');
}

/** Starts the program on a port of its own or on the wanted one. */
export async function startServer(more: string[] = [], wantedPort = 0): Promise<RealServer> {
  const binary = program();
  const data = mkdtempSync(join(tmpdir(), 'truegauge-web-'));
  const child = spawn(
    binary,
    [
      'up',
      '--listen',
      `127.0.0.1:${wantedPort}`,
      '--data-dir',
      join(data, 'store'),
      '--spool-dir',
      join(data, 'spool'),
      ...more,
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env },
    },
  );
  let said = '';
  child.stderr?.on('data', (piece) => {
    said = (said + piece).slice(-4000);
  });
  const url = await greeting(child, () => said);
  await ready(url, child, () => said);
  return {
    url,
    stop: async () => {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
      rmSync(data, { recursive: true, force: true });
    },
  };
}
