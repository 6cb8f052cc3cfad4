/** A silence: which alerts, until when, and why. */
import { useState } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { Segments } from '../components/segments';
import { parseDuration, parseTime } from '../explore/span';
import { counted } from '../fleet/names';
import { zone } from '../lib/clock';
import { who } from '../lib/session';
import { shown } from '../lib/text';
import { formatFull } from '../lib/time';
import { tell, tellError } from '../lib/toast';
import { type Alert, addSilence, endSilence, type Matcher } from './answers';
import type { Alerts } from './model';
import { isMatched, matchersOf, matcherText } from './words';

const LENGTHS = ['1h', '4h', '1d', 'until'] as const;

/** The end that is asked for; `null` where the text is none, or it is past. */
export function endOf(length: string, until: string, now: number): number | null {
  if (length !== 'until') return now + parseDuration(length)!;
  const [typed, end] = [until.trim(), parseTime(until)];
  const today = /^\d{1,2}:\d{2}$/.test(typed) ? clock(typed, now) : null;
  const time = today ?? end;
  return time !== null && time > now ? time : null;
}

/** A time of day, the next one from now on (UTC). */
function clock(text: string, now: number): number | null {
  const [hours, minutes] = text.split(':').map(Number);
  if (hours > 23 || minutes > 59) return null;
  const day = new Date(now);
  const at = Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), day.getUTCDate(), hours, minutes);
  return at > now ? at : at + 86_400_000;
}

/** The window. */
export function SilenceDialog({ page, alert, close }: { page: Alerts; alert: Alert; close: () => void }) {
  const all = matchersOf(alert);
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set(all.map((m) => m.name)));
  const [length, setLength] = useState<(typeof LENGTHS)[number] | ''>('');
  const [until, setUntil] = useState('');
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const matchers = all.filter((m) => kept.has(m.name));
  const touched = (page.summary.value?.groups ?? [])
    .flatMap((g) => g.alerts)
    .filter((a) => isMatched(a, matchers));
  const ends = length === '' ? null : endOf(length, until, Date.now());
  const missing =
    matchers.length === 0
      ? 'Without a label it would silence everything.'
      : length === ''
        ? 'Choose an end.'
        : ends === null
          ? 'The end is a time to come, such as 14:00 or 2026-11-30 14:00.'
          : reason.trim() === ''
            ? 'Say why: the next person on duty reads it.'
            : '';
  const toggle = (name: string) => {
    const next = new Set(kept);
    if (!next.delete(name)) next.add(name);
    setKept(next);
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (missing || ends === null || busy) return;
    setBusy(true);
    try {
      const id = await addSilence({
        matchers,
        starts_at: Date.now(),
        ends_at: ends,
        comment: reason.trim(),
        created_by: who.peek()?.name ?? '',
      });
      close();
      tell(`Silenced ${counted(touched.length, 'alert')} until ${formatFull(ends, zone.peek())}`, () => {
        endSilence(id).then(
          () => page.load(),
          (error: unknown) => tellError('cannot take the silence back', error),
        );
      });
      await page.load();
    } catch (error) {
      tellError('cannot silence', error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Silence ${shown(alert.rule, 40)}?`} close={close} class="silence-dialog">
      <form onSubmit={(e) => void submit(e)}>
        <fieldset>
          <legend>Alerts with all of these</legend>
          {all.map((m) => (
            <MatcherBox key={m.name} matcher={m} on={kept.has(m.name)} toggle={() => toggle(m.name)} />
          ))}
        </fieldset>
        <p class="quiet">
          Receivers are not told meanwhile; Alertmanagers are, and have silences of their own.
        </p>
        <p role="status" class="quiet">
          {counted(touched.length, 'alert')} of now {touched.length === 1 ? 'is' : 'are'} silenced by it.
        </p>
        <div class="until">
          <span class="label">Until</span>
          <Segments
            label="How long"
            value={length as string}
            choose={(l) => setLength(l as (typeof LENGTHS)[number])}
            choices={[
              { value: '1h', content: '1 h' },
              { value: '4h', content: '4 h' },
              { value: '1d', content: '1 day' },
              { value: 'until', content: 'a time' },
            ]}
          />
          {length === 'until' && (
            <input
              class="control"
              aria-label="End of the silence (UTC)"
              placeholder="14:00"
              value={until}
              onInput={(e) => setUntil(e.currentTarget.value)}
            />
          )}
          {ends !== null && <span class="quiet">{formatFull(ends, zone.value)}</span>}
        </div>
        <label class="reason">
          Reason
          <input
            class="control"
            required
            maxLength={400}
            value={reason}
            onInput={(e) => setReason(e.currentTarget.value)}
          />
        </label>
        <footer>
          <span class={missing ? 'quiet' : 'unseen'}>{missing || 'Ready'}</span>
          <button type="submit" class="primary" disabled={missing !== '' || busy}>
            Silence
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function MatcherBox({ matcher, on, toggle }: { matcher: Matcher; on: boolean; toggle: () => void }) {
  return (
    <label class="matcher">
      <input type="checkbox" checked={on} onChange={toggle} />
      <code>{shown(matcherText(matcher), 80)}</code>
    </label>
  );
}
