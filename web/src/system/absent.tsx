/** Why there are no GPUs, or nothing at all; and what the node's numbers are measured against. */
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { copy } from '../lib/download';
import type { CaptureReport, MissingRow } from '../lib/missing';
import { formatValue } from '../lib/number';
import type { SystemBoard } from './board';
import { counted } from './words';

const ofGpu = (row: MissingRow) => row.metrics.some((m) => m.display.startsWith('system/gpu/'));

/** Why a run has no GPU series, from what its processes found. */
export function NoGpus({ system }: { system: SystemBoard }) {
  const { missing, missingError } = system.board;
  const rows = (missing.value?.missing ?? []).filter(ofGpu);
  return (
    <section class="panel no-gpus" aria-label="No GPU series">
      <header>
        <h2>No GPU series</h2>
      </header>
      {rows.map((row) => (
        <Reason key={row.reason + row.text} row={row} />
      ))}
      {rows.length === 0 && (
        <p class="quiet">
          {missingError.value === undefined
            ? 'Asking why.'
            : missing.value
              ? 'None is expected, and none came.'
              : 'This server cannot tell why.'}
        </p>
      )}
    </section>
  );
}

function Reason({ row }: { row: MissingRow }) {
  const hosts = new Set(row.places.flatMap((p) => p.host ?? []));
  return (
    <div class="reason">
      <p>
        <Sentence text={row.text} />
        {hosts.size > 1 && <span class="quiet"> On {counted(hosts.size, 'host')}.</span>}
      </p>
      {row.hint && (
        <p class="quiet">
          <Sentence text={row.hint} />
        </p>
      )}
      {row.command && (
        <p>
          <code>{row.command}</code>{' '}
          <button type="button" class="link" onClick={() => copy(row.command!, 'the command')}>
            Copy
          </button>
        </p>
      )}
    </div>
  );
}

/** Nothing of autocapture came at all. */
export function NoSystem({ system }: { system: SystemBoard }) {
  const { missing, missingError, metrics } = system.board;
  if (metrics.value === null) return null;
  const rows = missing.value?.missing ?? [];
  return (
    <section class="empty">
      <h2>No system series yet</h2>
      {rows.map((row) => (
        <Reason key={row.reason + row.text} row={row} />
      ))}
      {rows.length === 0 && (
        <p>
          {missingError.value === undefined
            ? 'Asking why.'
            : 'Autocapture starts with tg.init and sends its first samples at once; capture_system_metrics=False turns it off.'}
        </p>
      )}
    </section>
  );
}

/** The report of the process that reports a node. */
function nodeReport(reports: CaptureReport[], host: string | undefined): CaptureReport | undefined {
  const known = reports.filter((r) => r.limits !== null);
  return known.find((r) => r.host === host) ?? (host === undefined ? known[0] : undefined);
}

const fact = (attributes: Record<string, unknown>, key: string) => {
  const value = attributes[key];
  return typeof value === 'string' || typeof value === 'number' ? value : null;
};

/** What CPU and memory of a host are measured against. */
export interface Limits {
  mode: string;
  memoryAt: string;
  memory: number | null;
  cpuAt: string;
  cpus: number | null;
}

/** From the report of the host, else from what the run says of its first one. */
export function limitsOf(system: SystemBoard, host: string | undefined): Limits | null {
  const report = nodeReport(system.reports(host), host);
  const limits = report?.limits;
  if (limits)
    return {
      mode: limits.cgroup_mode,
      memoryAt: limits.memory_measured_at,
      memory: limits.memory_ceiling_bytes,
      cpuAt: limits.cpu_measured_at,
      cpus: limits.cpu_capacity_cpus,
    };
  const attributes = system.board.detail.value?.attributes ?? {};
  const [mode, memoryAt, cpuAt] = ['cgroup/mode', 'memory/measured_at', 'cpu/measured_at'].map((key) =>
    fact(attributes, `system/${key}`),
  );
  if (mode === null && memoryAt === null && cpuAt === null) return null;
  const amount = (key: string) => {
    const value = Number(fact(attributes, key) ?? Number.NaN);
    return Number.isFinite(value) ? value : null;
  };
  return {
    mode: String(mode ?? ''),
    memoryAt: String(memoryAt ?? ''),
    memory: amount('system/memory/ceiling_bytes'),
    cpuAt: String(cpuAt ?? ''),
    cpus: amount('system/cpu/capacity_cpus'),
  };
}

/** The card of what a host's numbers are measured against. */
export function HostFacts({ system, host }: { system: SystemBoard; host: string | undefined }) {
  const limits = limitsOf(system, host);
  if (!limits) return null;
  const rows: [string, string][] = [
    ['cgroups', limits.mode],
    ['CPUs', limits.cpus === null ? '' : formatValue(limits.cpus)],
    ['CPU measured at', limits.cpuAt],
    ['Memory limit', limits.memory === null ? '' : formatValue(limits.memory, 'B')],
    ['Memory measured at', limits.memoryAt],
  ];
  return (
    <section class="panel card-facts" aria-label={host ?? 'Host'}>
      <header>
        <h2>{host === undefined ? 'Host' : <Name text={host} limit={26} />}</h2>
      </header>
      <dl>
        {rows
          .filter(([, text]) => text !== '')
          .map(([title, text]) => (
            <div key={title}>
              <dt>{title}</dt>
              <dd>
                <Name text={text} limit={28} />
              </dd>
            </div>
          ))}
      </dl>
    </section>
  );
}
