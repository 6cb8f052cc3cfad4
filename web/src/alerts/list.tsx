/** Alerts in rows: what, where, since when, and the strip of the range. */
import { useMemo } from 'preact/hooks';
import { CritIcon } from '../components/icons';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { counted } from '../fleet/names';
import { setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { groupBy } from '../lib/group';
import { shown, visible } from '../lib/text';
import { formatFull, formatMinute, formatWhen } from '../lib/time';
import type { Alert } from './answers';
import { AlertIcon, PendingIcon, SilencedIcon } from './icons';
import type { Alerts } from './model';
import { ofAlerts, type Segment, segmentsOf, silencedSince, stripText, untilNow } from './strip';
import {
  causeText,
  heaviest,
  type Row,
  ruleCounts,
  type Section,
  scopeText,
  sentenceOf,
  sharedLabels,
  sinceOf,
  sinceText,
  valueText,
  waitsText,
} from './words';

/** Alerts of an open group that are listed. */
const LISTED = 20;
/** Width that a piece of a strip has at least, CSS pixels. */
const PIECE_PX = 3;
/** Rows of a section that are listed. */
const ROWS = 200;
const HEADS: Record<Section, string> = { firing: 'Firing', pending: 'Pending', silenced: 'Silenced' };

/** All rows of the tab. */
export function AlertList({ page }: { page: Alerts }) {
  const rows = page.shown.value;
  const sections = groupBy(rows, (row) => row.section);
  const { from, to } = page.strips.value?.answer.range ?? page.range.range.value;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of alerts">
      <table class="alert-table">
        <thead>
          <tr>
            <th scope="col">{rows[0] ? HEADS[rows[0].section] : 'Alert'}</th>
            <th scope="col">Value · rule</th>
            <th scope="col" class="times">
              <span>{formatMinute(from, zone.value)}</span>
              <span>{formatMinute((from + to) / 2, zone.value)}</span>
              <span>{formatMinute(to, zone.value)}</span>
            </th>
            <th scope="col" class="number">
              Since
            </th>
          </tr>
        </thead>
        {[...sections].map(([section, own], at) => (
          <tbody key={section}>
            {at > 0 && (
              <tr class="section">
                <th colSpan={4} scope="rowgroup">
                  {HEADS[section]}
                </th>
              </tr>
            )}
            {own.slice(0, ROWS).map((row) => (
              <Rows key={row.key} page={page} row={row} />
            ))}
            {own.length > ROWS && (
              <tr class="nested more">
                <td colSpan={4}>{counted(own.length - ROWS, 'further cause')}: a filter finds them.</td>
              </tr>
            )}
          </tbody>
        ))}
      </table>
    </div>
  );
}

function Rows({ page, row }: { page: Alerts; row: Row }) {
  const open = page.open.value.has(row.key);
  const isAlone = row.alerts.length === 1;
  return (
    <>
      <AlertRow page={page} row={row} alerts={row.alerts} folds={isAlone ? null : open} />
      {open &&
        row.alerts
          .slice(0, LISTED)
          .map((alert) => (
            <AlertRow
              key={alert.fingerprint}
              page={page}
              row={row}
              alerts={single(alert)}
              folds={null}
              nested
            />
          ))}
      {open && row.alerts.length > LISTED && (
        <tr class="nested more">
          <td colSpan={4}>
            {counted(row.alerts.length - LISTED, 'further alert')} of this cause: a filter such as{' '}
            <code>host:{visible(row.alerts[LISTED].labels.host ?? 'NAME')}</code> finds each.
          </td>
        </tr>
      )}
    </>
  );
}

const singles = new WeakMap<Alert, Alert[]>();

/** One alert as a list, the same one each time, so that its strip is kept. */
function single(alert: Alert): Alert[] {
  const known = singles.get(alert) ?? [alert];
  singles.set(alert, known);
  return known;
}

function AlertRow(props: {
  page: Alerts;
  row: Row;
  alerts: Alert[];
  /** Whether it is open where it folds others. */
  folds: boolean | null;
  nested?: boolean;
}) {
  const { page, row, alerts, folds, nested } = props;
  const [first] = alerts;
  const chosen = page.alert.value;
  const selected =
    chosen !== null && (folds === null ? alerts.includes(chosen) : page.row.value?.key === row.key && !folds);
  const since = sinceOf(alerts);
  const rule = page.byName.value.get(first.rule);
  const severity = heaviest(alerts);
  return (
    <tr
      class={nested ? 'nested' : ''}
      aria-selected={selected}
      data-alert={first.fingerprint}
      onClick={() => page.select(first)}
    >
      <th scope="row">
        <div class="alert-cell">
          <AlertIcon section={row.section} severity={severity} />
          <div>
            <button type="button" class="rule-name" onClick={() => page.select(first)}>
              <Name text={first.rule} limit={40} />
            </button>{' '}
            <Name
              class="quiet"
              text={scopeText(folds === null ? first.labels : sharedLabels(alerts))}
              limit={64}
            />
            {folds !== null && <Folded page={page} row={row} open={folds} />}
            <p class="said">
              <Said page={page} row={row} alert={first} many={folds !== null} />
            </p>
          </div>
        </div>
      </th>
      <td>
        <b>{folds === null ? valueText(first.value) : counted(alerts.length, 'alert')}</b>
        <p class="said">{rule ? waitsText(rule.query, rule.duration ?? 0) : ''}</p>
      </td>
      <td>
        <Strip page={page} row={row} alerts={alerts} />
      </td>
      <td class="number">
        <time title={formatFull(since, zone.value)}>
          {sinceText({ section: row.section, alerts }, now.value, rule?.duration ?? 0)}
        </time>
        <p class="said">{shown(severity, 14)}</p>
      </td>
    </tr>
  );
}

/** How many alerts one cause raised. */
function Folded({ page, row, open }: { page: Alerts; row: Row; open: boolean }) {
  const rules = ruleCounts(row.alerts);
  const others = rules.length - 1;
  return (
    <button
      type="button"
      class="folded"
      aria-expanded={open}
      onClick={(event) => {
        event.stopPropagation();
        page.toggle(row.key);
      }}
    >
      {open ? '▾' : '▸'} {counted(row.alerts.length, 'alert')}, one cause
      {others > 0 && `, ${counted(others, 'more rule')}`}
    </button>
  );
}

function Said({ page, row, alert, many }: { page: Alerts; row: Row; alert: Alert; many: boolean }) {
  if (row.section === 'silenced') {
    const ids = new Set(alert.silenced_by);
    const silence = page.silences.value?.find((s) => ids.has(s.id));
    if (silence)
      return (
        <>
          Until {formatWhen(silence.ends_at, now.value, zone.value)}, “
          <Name text={silence.comment} limit={60} />”
        </>
      );
  }
  const cause = many ? causeText(row.group) : '';
  if (cause) return <Name text={cause} limit={110} />;
  return <Sentence text={sentenceOf(alert)} />;
}

/** The strip of some alerts. */
function Strip({ page, row, alerts }: { page: Alerts; row: Row; alerts: Alert[] }) {
  const strips = page.strips.value;
  const silences = page.silences.value;
  const segments = useMemo(() => {
    if (!strips) return [];
    const silenced = row.section === 'silenced' ? silencedSince(alerts, silences ?? []) : null;
    const pieces = segmentsOf(strips.answer, ofAlerts(strips.by, alerts), strips.looked, silenced);
    return untilNow(pieces, row.section, sinceOf(alerts), strips.answer.range);
  }, [strips, silences, row.section, alerts]);
  if (!strips) return <div class="strip" />;
  const { from, to } = strips.answer.range;
  return (
    <div
      class={`strip ${row.section}`}
      role="img"
      aria-label={stripText(segments, from, to, (ms) => formatMinute(ms, zone.value))}
    >
      <Pieces segments={segments} />
    </div>
  );
}

/** Segments as boxes. */
export function Pieces({ segments }: { segments: Segment[] }) {
  return (
    <>
      {segments.map((s) => (
        <i
          key={`${s.kind} ${s.from}`}
          class={s.kind}
          style={{
            left: `min(${s.from * 100}%, 100% - ${PIECE_PX}px)`,
            width: `max(${PIECE_PX}px, ${(s.to - s.from) * 100}%)`,
          }}
        />
      ))}
    </>
  );
}

/** What could not be evaluated: it stands before what fires. */
export function Errors({ errors }: { errors: { rule: string; error: string }[] }) {
  if (errors.length === 0) return null;
  return (
    <ul class="rule-errors" aria-label="Rules that can’t be evaluated">
      {errors.slice(0, 5).map(({ rule, error }) => (
        <li key={rule}>
          <CritIcon />
          <button type="button" class="rule-name" onClick={() => setParams({ rule, sel: null })}>
            <Name text={rule} limit={40} />
          </button>
          <span>
            can’t be evaluated: <Name text={error} limit={240} />
          </span>
        </li>
      ))}
      {errors.length > 5 && <li class="quiet">{counted(errors.length - 5, 'further rule')} fail as well.</li>}
    </ul>
  );
}

/** Shape, word and number of a section, for its tab. */
export function SectionMark({ section, count }: { section: Section; count: number | undefined }) {
  return (
    <>
      <span class={`alert-icon ${section} ${count ? 'crit' : 'none'}`}>
        {section === 'firing' ? <CritIcon /> : section === 'pending' ? <PendingIcon /> : <SilencedIcon />}
      </span>{' '}
      {HEADS[section]} {count ?? ''}
    </>
  );
}
