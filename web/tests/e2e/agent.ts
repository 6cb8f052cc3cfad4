/** A real agent on a machine with a made-up driver. */
import { type ChildProcess, spawn } from 'node:child_process';
import { appendFileSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { program } from './server';

/** An agent under test. */
export interface RealAgent {
  /** What its driver says from now on. */
  play: (scenario: string) => void;
  /** Writes a line into the kernel's log that it reads. */
  log: (line: string) => void;
  stop: () => Promise<void>;
}

/** Starts `truegauge agent` beside the program under test, as `host`, looking once a second. */
export async function startAgent(server: string, host: string, scenario: string): Promise<RealAgent> {
  const folder = mkdtempSync(join(tmpdir(), 'truegauge-agent-'));
  const library = join(folder, 'libnvidia-ml.so.1');
  copyFileSync(join(dirname(program()), 'libfake_nvml.so'), library);
  const play = (text: string) => writeFileSync(join(folder, 'scenario.toml'), text);
  play(scenario);
  const kmsg = join(folder, 'kern.log');
  writeFileSync(kmsg, '');
  const flags: Record<string, string> = {
    server,
    host,
    listen: '127.0.0.1:0',
    'state-dir': join(folder, 'state'),
    'gpu-library': library,
    kmsg,
    interval: '1s',
  };
  const child = spawn(
    program(),
    ['agent', '--json', ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value])],
    { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env } },
  );
  let said = '';
  child.stderr?.on('data', (piece) => {
    said = (said + piece).slice(-4000);
  });
  await greeting(child, () => said);
  return {
    play,
    log: (line) => appendFileSync(kmsg, `${line}\n`),
    stop: async () => {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function greeting(child: ChildProcess, said: () => string): Promise<void> {
  return new Promise((done, fail) => {
    child.stdout?.once('data', () => done());
    child.once('exit', (code) => fail(new Error(`the agent ended with ${code}: ${said()}`)));
  });
}
