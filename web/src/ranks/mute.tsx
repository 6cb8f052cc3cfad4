/** Nobody is told of a verdict for an hour: a silence of the alerts that it raises. */
import { useEffect, useState } from 'preact/hooks';
import { addSilence, askSilences, endSilence, type Matcher, type Silence } from '../alerts/answers';
import { Guarded } from '../components/guarded';
import type { Verdict } from '../health/answers';
import { ALERTS } from '../health/firings';
import { now, zone } from '../lib/clock';
import { who } from '../lib/session';
import { formatMinute } from '../lib/time';
import { tell, tellError } from '../lib/toast';

const HOUR_MS = 3_600_000;
/** What the alerts of a verdict have in common; `null` where it raises none. */
export function mutedBy(runId: string, verdict: Verdict): Matcher[] | null {
  const rule = ALERTS[verdict.class];
  if (!rule) return null;
  const is = (name: string, value: string, regex = false): Matcher => ({
    name,
    value,
    is_regex: regex,
    is_equal: true,
  });
  const named = rule.startsWith('Straggler') && verdict.ranks.length > 0;
  const ranks = verdict.ranks.map(String);
  return [
    is('alertname', rule, rule.includes('(')),
    is('run_id', runId),
    ...(named ? [is('rank', ranks.join('|'), ranks.length > 1)] : []),
  ];
}

const key = (matchers: Matcher[]) =>
  JSON.stringify(matchers.map((m) => [m.name, m.value, m.is_regex, m.is_equal]).sort());

/** The silence of exactly these alerts that holds now. */
export function holding(silences: Silence[], matchers: Matcher[], at: number): Silence | null {
  const wanted = key(matchers);
  return silences.find((s) => s.starts_at <= at && s.ends_at > at && key(s.matchers) === wanted) ?? null;
}

/** The button, or until when it is muted. */
export function Mute({ runId, verdict }: { runId: string; verdict: Verdict }) {
  const [silences, setSilences] = useState<Silence[]>([]);
  const [busy, setBusy] = useState(false);
  const matchers = mutedBy(runId, verdict);
  const raises = matchers !== null;
  const read = () =>
    askSilences().then(setSilences, () => {
      // Who may not see silences may not add one: the button says so.
    });
  useEffect(() => {
    if (raises) void read();
  }, [runId, raises]);
  if (!matchers) return null;
  const silence = holding(silences, matchers, now.value);
  const perform = async (what: () => Promise<unknown>, failed: string) => {
    if (busy) return;
    setBusy(true);
    try {
      await what();
    } catch (error) {
      tellError(failed, error);
    }
    await read();
    setBusy(false);
  };
  const unmute = (id: string) => void perform(() => endSilence(id), 'cannot take the silence back');
  if (silence)
    return (
      <Guarded
        class="control"
        disabled={busy}
        title="Its alerts are told again at once"
        act={() => unmute(silence.id)}
      >
        Muted until {formatMinute(silence.ends_at, zone.value)}, unmute
      </Guarded>
    );
  const mute = async () => {
    const begins = Date.now();
    const id = await addSilence({
      matchers,
      starts_at: begins,
      ends_at: begins + HOUR_MS,
      comment: `muted on the run’s page: ${verdict.claim}`.slice(0, 200),
      created_by: who.peek()?.name ?? '',
    });
    tell('Muted for 1 h: it stays on this page, nobody is told', () => unmute(id));
  };
  return (
    <Guarded
      class="control"
      disabled={busy}
      title="Nobody is told of it for an hour; it stays on this page"
      act={() => void perform(mute, 'cannot mute it')}
    >
      Mute 1 h
    </Guarded>
  );
}
