/** The first look at a run: six numbers, how it is watched, and what was wrong before. */
import type { Board } from '../charts/board';
import { LaterTab } from '../components/later';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { param, setParams } from '../lib/address';
import { unspell } from '../lib/answers';
import { now, zone } from '../lib/clock';
import { formatCount, formatValue } from '../lib/number';
import { visible } from '../lib/text';
import { formatSpan, formatWhen } from '../lib/time';
import { figureOf, priceText } from '../money/panel';
import { quantity } from '../money/quantity';
import type { Figure, Health, Verdict } from './answers';
import { LevelIcon } from './strip';

const HISTORY_MAX = 50;

const evidence = () => import('./evidence').then((m) => m.EvidencePanel);

/** One number in large. */
function Tile(props: { text: string; value: string | null; note?: string; reason?: string; title?: string }) {
  const { text, value, note, reason, title } = props;
  return (
    <div class={value === null ? 'missing' : ''} title={title && visible(title)}>
      <dt>{text}</dt>
      <dd>{value ?? <Sentence text={reason || 'not known'} />}</dd>
      {note && value !== null && <dd class="note">{note}</dd>}
    </div>
  );
}

function FigureTile(props: {
  text: string;
  figure?: Figure | null;
  title?: string;
  write?: (value: number) => string;
}) {
  const { text, figure, title, write } = props;
  const value = figure?.value ?? null;
  const covered = figure?.coverage ?? null;
  return (
    <Tile
      text={text}
      value={value === null ? null : (write?.(value) ?? quantity(value, figure!.unit))}
      note={covered !== null && covered < 0.99 ? `coverage ${covered.toFixed(2)}` : undefined}
      reason={figure?.reason ?? undefined}
      title={[figure?.explain, title].filter(Boolean).join('\n')}
    />
  );
}

/** Six tiles. */
export function Tiles({ board }: { board: Board }) {
  const health = board.health.value;
  const detail = board.detail.value!;
  const loss = (board.metrics.value ?? []).find((m) => /(^|\/)loss$/.test(m.display));
  const last = unspell(loss?.last);
  const { figures, money } = health ?? {};
  return (
    <dl class="tiles" aria-label="The run in six numbers">
      <Tile
        text="Step"
        value={detail.last_step === null ? null : formatCount(detail.last_step)}
        reason="nothing was logged with a step"
      />
      <Tile
        text={loss ? visible(loss.display) : 'Loss'}
        value={last === null ? null : formatValue(last)}
        reason="no metric is named `loss`"
      />
      {health && (
        <>
          <FigureTile text="Tokens a second" figure={figures?.tokens_per_second} />
          <FigureTile text="MFU" figure={figures?.mfu_ratio} />
          <FigureTile text="ETTR" figure={figures?.ettr_ratio} write={(v) => v.toFixed(2)} />
          <FigureTile text="Cost" figure={money && figureOf(money, 'usd')} title={priceText(money?.price)} />
        </>
      )}
    </dl>
  );
}

/** How the run is watched, in one sentence. */
export function watchedText({ state, reason, watched }: Health): string {
  if (state === 'unknown') return reason ?? 'Nothing is known of its health.';
  const of = watched?.of ?? null;
  const ranks = watched
    ? `${formatCount(watched.ranks)}${of !== null ? ` of ${formatCount(of)}` : ''} ranks watched over ${formatCount(watched.window_steps)} steps`
    : '';
  const at = watched?.last_step ?? null;
  const why = watched?.reason ? ` ${watched.reason}` : '';
  const rest = [ranks, at === null ? '' : `last at step ${formatCount(at)}`].filter(Boolean).join(', ');
  if (state === 'ok') return (rest ? `Nothing is wrong: ${rest}.` : 'Nothing is wrong.') + why;
  return rest ? `${rest.charAt(0).toUpperCase()}${rest.slice(1)}.` : '';
}

/** Health in words, its further figures, and what has passed. */
export function HealthPanel({ board }: { board: Board }) {
  const health = board.health.value;
  if (!health) return null;
  const { figures, history } = health;
  const more: [string, string][] = [
    ['step_seconds_median', 'Median step'],
    ['step_spread_ratio', 'Spread of the ranks'],
    ['goodput_ratio', 'Goodput'],
    ['mtbi_seconds', 'Between interruptions'],
  ];
  return (
    <section class="panel" aria-label="Health of the run">
      <h2>Health</h2>
      <p class={health.state === 'unknown' ? 'quiet' : ''} role="status">
        <Sentence text={watchedText(health)} />
      </p>
      <table>
        <tbody>
          {more.map(([key, text]) => {
            const figure = figures[key];
            if (!figure) return null;
            return (
              <tr key={key}>
                <th scope="row">{text}</th>
                <td title={visible(figure.explain ?? '')}>
                  {figure.value === null ? (
                    <span class="quiet">
                      — <Sentence text={figure.reason ?? 'not known'} />
                    </span>
                  ) : (
                    quantity(figure.value, figure.unit)
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {history.length > 0 && (
        <>
          <h2>
            Passed <span class="quiet">{formatCount(history.length)}</span>
          </h2>
          <div class="scroll" tabIndex={0} role="region" aria-label="Verdicts that have passed">
            <table>
              <tbody>
                {history.slice(0, HISTORY_MAX).map((verdict) => (
                  <Passed key={verdict.id} verdict={verdict} />
                ))}
              </tbody>
            </table>
          </div>
          {history.some((v) => v.id === param('verdict')) && <LaterTab tab={evidence} board={board} />}
        </>
      )}
    </section>
  );
}

function Passed({ verdict }: { verdict: Verdict }) {
  const { id, level, claim, since, cleared } = verdict;
  const open = param('verdict') === id;
  const length = since !== null && cleared !== null ? formatSpan((cleared - since) / 1000) : '—';
  return (
    <tr>
      <th scope="row">{since === null ? '—' : formatWhen(since, now.value, zone.value)}</th>
      <td>
        <span class={`level ${level}`}>
          <LevelIcon level={level} />
        </span>{' '}
        <button
          type="button"
          class="link"
          aria-expanded={open}
          onClick={() => setParams({ verdict: open ? null : id })}
        >
          <Name text={claim} limit={80} />
        </button>
      </td>
      <td class="number">{length}</td>
    </tr>
  );
}
