/** Incidents: one row for each cause, what to do about it, and the lines it rests on. */
import { useState } from 'preact/hooks';
import { CritIcon, InfoIcon, OkIcon, WarnIcon } from '../components/icons';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { now, zone } from '../lib/clock';
import { gpuPath, remediationPath } from '../lib/route';
import { shown, visible } from '../lib/text';
import { formatSecond, formatWhen } from '../lib/time';
import type { Code, Incident, IncidentsAnswer } from './answers';
import { counted, gpuName } from './names';
import { timeTitle } from './words';

/** Lines of evidence that are shown before one asks for more. */
const LINES = 20;

/** The order in which actions weigh, and how each one is drawn. */
const WEIGHT: Record<string, 'ok' | 'warn' | 'crit'> = {
  none: 'ok',
  restart_app: 'warn',
  reset_gpu: 'warn',
  drain_reset: 'crit',
  restart_vm: 'crit',
  reboot_node: 'crit',
  inspect: 'warn',
  contact: 'crit',
};

/** Who says what is to be done. */
const SAYS: Record<string, string> = {
  'driver-154': 'the driver says so (Xid 154)',
  'nvml-recovery': 'the driver says so (recovery action)',
  'nvidia-catalog': 'by NVIDIA’s catalogue',
  'local-policy': 'by this server’s own rules',
};

function Severity({ incident }: { incident: Incident }) {
  if (incident.state === 'cleared') return <OkIcon />;
  if (incident.severity === 'critical') return <CritIcon />;
  return incident.severity === 'warning' ? <WarnIcon /> : <InfoIcon />;
}

/** What to do, as the words of the catalogue. */
function Action({ incident }: { incident: Incident }) {
  return (
    <span class={`pill ${WEIGHT[incident.action] ?? 'warn'}`}>
      <code>{shown(incident.action, 20)}</code>
    </span>
  );
}

/** Causes, then those that stand alone; the newest first, as the server has them. */
export function IncidentList(props: {
  answer: IncidentsAnswer;
  /** Shows where the incident is, where the page has a map. */
  select?: (incident: Incident) => void;
}) {
  const { answer, select } = props;
  const common = answer.common.filter((c) => answer.incidents.some((i) => i.common === c.id));
  const grouped = new Set(common.map((c) => c.id));
  return (
    <div class="incidents">
      {common.map((cause) => (
        <section key={cause.id} class="common" aria-label="A common cause">
          <p>
            <WarnIcon /> <Sentence text={cause.sentence} />
          </p>
          {answer.incidents
            .filter((i) => i.common === cause.id)
            .map((i) => (
              <IncidentRow key={i.id} incident={i} select={select} />
            ))}
        </section>
      ))}
      {answer.incidents
        .filter((i) => i.common === null || !grouped.has(i.common))
        .map((i) => (
          <IncidentRow key={i.id} incident={i} select={select} />
        ))}
      {answer.left_out + answer.dropped > 0 && (
        <p class="quiet">{counted(answer.left_out + answer.dropped, 'older incident')} not listed.</p>
      )}
    </div>
  );
}

function IncidentRow({ incident, select }: { incident: Incident; select?: (incident: Incident) => void }) {
  const [open, setOpen] = useState(false);
  const place = gpuName(incident, 24);
  const { cleared } = incident;
  const waits = incident.waits_until !== null && incident.waits_until > now.value;
  return (
    <article
      class={`incident ${incident.state} is-${incident.severity}`}
      aria-label={`${visible(incident.title)}, ${place}`}
    >
      <header>
        <Severity incident={incident} />
        <h3>
          <Name text={incident.title} limit={120} />
        </h3>
        {select ? (
          <button type="button" class="place" onClick={() => select(incident)}>
            {place}
          </button>
        ) : (
          <span class="place">{place}</span>
        )}
        <time title={timeTitle(incident.last)}>{formatWhen(incident.last, now.value, zone.value)}</time>
      </header>
      <p class="effect">
        <Sentence text={incident.effect} />
      </p>
      <p class="act">
        <Action incident={incident} />
        <span class="quiet">
          {SAYS[incident.provenance] ?? <Sentence text={incident.provenance} />}
          {incident.confidence &&
            incident.confidence !== 'high' &&
            ` · ${shown(incident.confidence, 24)} confidence`}
          {waits && ' · the driver’s own verdict is waited for'}
          {cleared &&
            ` · cleared ${formatWhen(cleared.time, now.value, zone.value)} by ${shown(cleared.by, 40)}`}
        </span>
        <button type="button" class="link" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? 'Hide evidence' : 'Evidence'}
        </button>
      </p>
      {open && <Details incident={incident} />}
    </article>
  );
}

const PARTS: Code['part'][] = ['cause', 'symptom', 'detail'];

/** Codes, lines, and whom it touched. */
function Details({ incident }: { incident: Incident }) {
  const [all, setAll] = useState(false);
  const codes = incident.codes.toSorted((a, b) => PARTS.indexOf(a.part) - PARTS.indexOf(b.part));
  const lines = all ? incident.evidence : incident.evidence.slice(0, LINES);
  const symptoms = new Set(codes.filter((c) => c.part === 'symptom').map((c) => c.code));
  return (
    <div class="details">
      {codes.length > 0 && (
        <ul class="codes">
          {codes.map((code) => (
            <li key={code.code} class={code.part}>
              <b>{shown(code.code, 32)}</b>
              {code.count > 1 && ` ×${code.count.toLocaleString('en-US')}`}{' '}
              <Name text={code.title} limit={80} />
              <span class="quiet">
                {code.part === 'symptom' ? 'symptom, not acted on' : code.part} ·{' '}
                {formatSecond(code.first, zone.value)}
                {code.last !== code.first && `–${formatSecond(code.last, zone.value)}`}
              </span>
            </li>
          ))}
        </ul>
      )}
      {incident.conflicts.map((text) => (
        <p key={text} class="warning">
          <WarnIcon /> <Sentence text={text} />
        </p>
      ))}
      <Touched incident={incident} />
      {lines.length > 0 && (
        <ol class="lines">
          {lines.map((line, at) => (
            <li
              key={at}
              class={line.userspace || (line.code !== null && symptoms.has(line.code)) ? 'grey' : ''}
            >
              <time title={timeTitle(line.time)}>{formatSecond(line.time, zone.value)}</time>
              <span class="quiet">{line.userspace ? 'user space' : shown(line.source, 16)}</span>
              <code>{visible(line.text)}</code>
            </li>
          ))}
        </ol>
      )}
      {lines.length < incident.evidence.length && (
        <button type="button" class="link" onClick={() => setAll(true)}>
          {counted(incident.evidence.length - lines.length, 'further line')}
        </button>
      )}
      {incident.evidence_left_out > 0 && (
        <p class="quiet">{counted(incident.evidence_left_out, 'line')} more came and are only counted.</p>
      )}
      {incident.gpu !== '' && (
        <Link href={gpuPath(incident.host, incident.gpu, incident.uuid ?? '')}>GPU page</Link>
      )}
      {incident.state === 'open' && incident.action !== 'none' && (
        <Link href={remediationPath(incident.host, incident.gpu)}>What remediation does about it</Link>
      )}
    </div>
  );
}

function Touched({ incident }: { incident: Incident }) {
  const { processes, jobs, runs, slices } = incident;
  if (processes.length + jobs.length + runs.length + slices.length === 0) return null;
  return (
    <dl class="touched">
      {runs.length > 0 && (
        <>
          <dt>runs</dt>
          <dd>
            {runs.map(({ run_id, run }) => (
              <Link key={run_id} href={`/r/${encodeURIComponent(run_id)}`}>
                <Name text={run || run_id} limit={32} />
              </Link>
            ))}
          </dd>
        </>
      )}
      {jobs.length > 0 && (
        <>
          <dt>jobs</dt>
          <dd>{jobs.map((job) => shown(job, 32)).join(', ')}</dd>
        </>
      )}
      {processes.length > 0 && (
        <>
          <dt>processes</dt>
          <dd>
            {processes
              .map(({ pid, name }) => (name ? `${shown(name, 32)} (${pid})` : `pid ${pid}`))
              .join(', ')}
          </dd>
        </>
      )}
      {slices.length > 0 && (
        <>
          <dt>MIG slices</dt>
          <dd>{slices.map((slice) => shown(slice, 16)).join(', ')}</dd>
        </>
      )}
    </dl>
  );
}
