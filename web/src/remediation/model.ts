/** The Remediation page: what was read, and what is chosen. */
import { batch, computed, signal } from '@preact/signals';
import { FleetRange } from '../fleet/range';
import { param, setParams } from '../lib/address';
import { errorLine, isAbort, tokenEntered } from '../lib/api';
import { tellDuty, waiting } from '../lib/duty';
import { tell, tellError } from '../lib/toast';
import {
  type Act,
  approve,
  askRemediation,
  declareHealthy,
  type Host,
  propose,
  type RemediationAnswer,
  reject,
} from './answers';
import type { Question } from './asked';

/** All of it. */
export class Remediation {
  readonly range = new FleetRange('7d');
  readonly answer = signal<RemediationAnswer | null>(null);
  readonly error = signal<unknown>(null);
  /** What the last act of the user met with, where it stands. */
  readonly refused = signal('');
  readonly busy = signal(false);

  readonly pool = computed(() => param('pool'));
  /** The act that is decided on; `null` for none. */
  readonly act = computed<Act | null>(() => {
    const all = this.answer.value;
    return all?.queue.find((a) => a.id === param('act')) ?? null;
  });
  /** The host whose states are shown: the chosen one, that of an act, or one that is not healthy. */
  readonly host = computed<Host | null>(() => {
    const all = this.answer.value;
    const named = (name: string | undefined, gpu?: string) =>
      all?.hosts.find((h) => h.host === name && (!gpu || h.gpu === gpu)) ?? null;
    const card = param('uuid');
    return (
      (card ? all?.hosts.find((h) => h.host === param('host') && h.uuid === card) : null) ??
      named(param('host'), param('gpu')) ??
      named(param('host')) ??
      named(this.act.value?.host, this.act.value?.gpu) ??
      named(all?.queue[0]?.host, all?.queue[0]?.gpu) ??
      all?.hosts.find((h) => h.state !== 'healthy') ??
      null
    );
  });
  readonly question = computed(() => JSON.stringify([tokenEntered.value]));

  private controller = new AbortController();

  /** Reads everything; the old picture stays until the new one is there. */
  async load(): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal: stop } = this.controller;
    try {
      const answer = await askRemediation(stop);
      if (stop.aborted) return;
      batch(() => {
        this.answer.value = answer;
        this.error.value = null;
        tellDuty(waiting, answer.queue.length);
      });
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    }
  }

  /** Opens the window of an act, or closes it. */
  open(id: string | null): void {
    this.refused.value = '';
    setParams({ act: id });
  }

  private async perform(what: () => Promise<unknown>, done: string): Promise<boolean> {
    if (this.busy.peek()) return false;
    this.busy.value = true;
    this.refused.value = '';
    try {
      await what();
      tell(done);
      return true;
    } catch (error) {
      this.refused.value = errorLine(error);
      tellError('cannot do it', error);
      return false;
    } finally {
      this.busy.value = false;
      await this.load();
    }
  }

  /** Lets an act run. */
  approve(act: Act, dryRun: boolean, confirm: string): Promise<boolean> {
    const done = dryRun ? 'rehearsed, nothing ran' : 'approved, runs for real';
    return this.perform(() => approve(act.id, dryRun, confirm), `${act.host}: ${done}`);
  }

  /** Rejects an act. */
  reject(act: Act, reason: string): Promise<boolean> {
    return this.perform(() => reject(act.id, reason), `${act.host}: rejected`);
  }

  /** Has the policy's act for something queued, and opens it. */
  async propose({ host, uuid, verdict }: Question, reason: string): Promise<void> {
    let made: Act | null = null;
    const done = `${host}: waits for a decision`;
    const ask = async () => {
      made = await propose({ host, verdict, reason, ...(uuid && { uuid }) });
    };
    if ((await this.perform(ask, done)) && made) this.open((made as Act).id);
  }

  /** Says that a host is fine. */
  heal(host: Host, reason: string): Promise<boolean> {
    return this.perform(() => declareHealthy(host.host, reason), `${host.host}: said to be healthy`);
  }

  /** Calls off everything. */
  end(): void {
    this.controller.abort();
  }
}
