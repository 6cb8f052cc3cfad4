/** What acts and edges are called, and which way a host has gone. */
import { counted } from '../fleet/names';
import { groupBy } from '../lib/group';
import { formatBrief, formatCount, THIN } from '../lib/number';
import { shown } from '../lib/text';
import { formatAge, formatSpan } from '../lib/time';
import {
  type Act,
  type ActMode,
  type Edge,
  type Guard,
  type Host,
  type HostState,
  type Mode,
  type Pool,
  STATES,
} from './answers';

/** A share in percent. */
const percent = (ratio: number) => formatBrief(Number((ratio * 100).toPrecision(3)), '%');

/** The modes as words. */
export const MODES: Record<Mode, string> = { off: 'off', dry_run: 'dry run', real: 'real' };

/** How far an act goes by itself. */
export const ACT_MODES: Record<ActMode, string> = {
  dry_run: 'dry run',
  approve: 'asks',
  auto: 'by itself',
};

/** A state as people say it. */
export const stateText = (state: string) => shown(state.replaceAll('_', ' '), 24);

/** How much a state asks for. */
export function stateTone(state: string): 'ok' | 'warn' | 'crit' | '' {
  if (state === 'healthy') return 'ok';
  return state === 'needs_human' ? 'crit' : 'warn';
}

/** A state that a host has been in, or will be, on its way back. */
export interface Station {
  state: HostState;
  /** When it came there; `null` when it has not. */
  since: number | null;
  is: 'passed' | 'here' | 'ahead';
  /** Whether it came there in a dry run. */
  dry: boolean;
}

/** The usual way: what stands aside of it is put in only where a host has gone it. */
const WAY: HostState[] = ['healthy', 'suspect', 'cordoned', 'draining', 'resetting', 'validating', 'healthy'];

/** Edges of a host since it was last healthy, the oldest first. */
function since(edges: Edge[], host: string): Edge[] {
  const own = edges.filter((e) => e.host === host && e.from !== e.to).toSorted((a, b) => a.time - b.time);
  const healed = own.findLastIndex((e) => e.to === 'healthy');
  return own.slice(healed + 1);
}

/** Where a host has been, is, and may go yet. */
export function stationsOf(host: Host, edges: Edge[]): Station[] {
  const gone = since(edges, host.host);
  const passed = new Map<string, Edge>();
  for (const edge of gone) passed.set(edge.to, edge);
  const way = WAY.toSpliced(
    5,
    0,
    ...(host.state === 'rebooting' || passed.has('rebooting') ? (['rebooting'] as HostState[]) : []),
  );
  if (host.state === 'needs_human') way.splice(-1, 1, 'needs_human');
  const at = host.state === 'healthy' ? 0 : way.lastIndexOf(host.state);
  return way.map((state, index): Station => {
    const edge = index > 0 ? passed.get(state) : undefined;
    if (index === at) return { state, since: host.since, is: 'here', dry: host.dry_run };
    const before = index < at && (index === 0 || edge !== undefined);
    return {
      state,
      since: before ? (edge?.time ?? null) : null,
      is: before ? 'passed' : 'ahead',
      dry: edge?.dry_run ?? false,
    };
  });
}

/** Hosts by state, in the order of the states; a state that is not known comes last. */
export function columnsOf(hosts: Host[], pool: string): { state: string; hosts: Host[] }[] {
  const kept = hosts.filter((h) => pool === '' || h.pool === pool);
  const by = groupBy(kept, (h) => h.state as string);
  const others = [...by.keys()].filter((s) => !(STATES as readonly string[]).includes(s));
  return [...STATES, ...others].map((state) => ({
    state,
    hosts: (by.get(state) ?? []).toSorted((a, b) => b.since - a.since),
  }));
}

/** `1 of 2 nodes in remediation, breaker closed, 3 % newly bad`. */
export function poolText(pool: Pool): string {
  const bad =
    pool.newly_bad_ratio === null ? 'newly bad unknown' : `${percent(pool.newly_bad_ratio)} newly bad`;
  const quiet = pool.quiet ? ', in a quiet window' : '';
  return `${pool.in_remediation} of ${pool.budget} in remediation, breaker ${pool.breaker}, ${bad}${quiet}`;
}

/** What a checkpoint means for a restart. */
export function checkpointText(act: Act): { step: string; age: string; lost: string } | null {
  const c = act.checkpoint;
  if (!c) return null;
  return {
    step: `step ${formatCount(c.step)}`,
    age: c.age_seconds === null ? 'of unknown age' : `${formatAge(c.age_seconds)} old`,
    lost:
      c.steps_lost === null
        ? 'how many steps would be repeated is not known'
        : c.steps_lost === 1
          ? '1 step would be repeated'
          : `${formatCount(c.steps_lost)} steps would be repeated`,
  };
}

/** What is to be won; `null` where nobody knows. */
export const gainText = (act: Act): string | null =>
  act.gain_ratio === null ? null : `${percent(act.gain_ratio)} of step time`;

/** What an act is called: its title, with the place where that does not have it. */
export const actTitle = (act: Act): string =>
  act.title.includes(act.host) ? act.title : `${act.host}${act.gpu && ` · GPU ${act.gpu}`}: ${act.title}`;

/** `interrupts 1 run`. */
export function interruptsText(act: Act): string {
  const alive = act.affects.filter((a) => !a.dead);
  const what = alive.every((a) => a.run_id !== null) ? 'run' : 'job';
  return alive.length === 0 ? 'interrupts no run' : `interrupts ${counted(alive.length, what)}`;
}

/** Whether something alive is interrupted. */
export const interrupts = (act: Act) => act.affects.some((a) => !a.dead);

/** Guards that say no. */
export const refusing = (guards: Guard[]) => guards.filter((g) => g.ok === false);

/** Why an act can't run for real; empty when it can. */
export function realProblem(act: Act, mode: Mode, typed: string): string {
  if (mode === 'off') return 'Remediation is off.';
  if (mode !== 'real') return 'The server is in dry run: nothing runs for real until its mode is real.';
  const hard = act.guards.find((g) => g.hard && g.ok !== true);
  if (hard) return `A guard says no, and nobody can agree around it: ${shown(hard.text, 120)}`;
  return typed === act.confirm ? '' : `Type ${shown(act.confirm, 80)} to run it for real.`;
}

/** What the runs lose that are interrupted: `8 min, $27.00`; and why more is not known. */
export function lostText(act: Act): { known: string; missing: string } {
  const { seconds, usd, reason } = act.lost;
  const parts = [seconds === null ? '' : formatSpan(seconds), usd === null ? '' : `$${usd.toFixed(2)}`];
  return { known: parts.filter((part) => part !== '').join(', '), missing: reason ?? '' };
}

/** `limit 180 s` */
export const limitText = (seconds: number | null) =>
  seconds === null ? '' : `limit ${formatCount(seconds)}${THIN}s`;

/** When an act is forgotten. */
export function expiryText(act: Act, now: number): string {
  if (act.expires === null) return 'It does not expire.';
  const left = (act.expires - now) / 1000;
  return left > 0 ? `Expires in ${formatSpan(left)}, then nothing happens.` : 'Expired: nothing happens.';
}

/** An edge as one reads it: `suspect → cordoned`. */
export const edgeText = (edge: Edge) =>
  edge.from === edge.to || edge.to === ''
    ? shown(edge.text || stateText(edge.from), 120)
    : `${stateText(edge.from)} → ${stateText(edge.to)}`;

/** Whether an edge was for real, and what of it: only what was done is real. */
export function deedText(edge: Edge): 'dry' | 'real' | 'seen' | 'decided' {
  if (edge.what === 'observed') return 'seen';
  if (edge.dry_run) return 'dry';
  return edge.what === 'decided' ? 'decided' : 'real';
}

/** Edges as CSV, whole. */
export function auditCsv(edges: Edge[]): string {
  const quote = (value: unknown) => {
    const text = String(value ?? '');
    // A table program would take these for a formula.
    return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  };
  const head = ['time', 'host', 'gpu', 'from', 'to', 'text', 'actor', 'mode', 'evidence', 'id', 'commands'];
  const rows = edges.map((e) => [
    new Date(e.time).toISOString(),
    ...[
      e.host,
      e.gpu,
      e.from,
      e.to,
      e.text,
      e.actor,
      { dry: 'dry run', real: 'real', seen: 'seen', decided: 'decided' }[deedText(e)],
    ],
    ...[e.evidence.join(' '), e.id, e.commands.join('; ')],
  ]);
  return `${[head, ...rows].map((row) => row.map(quote).join(',')).join('\n')}\n`;
}
