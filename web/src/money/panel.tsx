/** What a run costs: what the bill says beside what busy time alone would, and what is not known with the setting that fills it. */
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import type { Figure, Money, Price } from '../health/answers';
import { formatUsd, quantity } from './quantity';

const COVERED = 0.99;

/** A row: the figure, and whether it is the one to read first. */
const ROWS: [key: string, text: string, strong: boolean, hint: string][] = [
  ['usd', 'So far', true, 'GPU hours that were held, at the price of this revision; idle ones are paid, too'],
  ['usd_per_hour', 'Now', false, 'All cards of the run at their price'],
  [
    'usd_lost_to_verdicts',
    'Lost to verdicts',
    false,
    'Share of step time that each verdict costs, since its onset',
  ],
  [
    'usd_per_mtok',
    'Per million tokens, with idle',
    true,
    'Everything that was paid over everything that was trained',
  ],
  [
    'usd_per_mtok_busy',
    'Per million tokens, busy only',
    false,
    'Only the time in which steps ran: what it would be without idle time',
  ],
  ['gpu_hours', 'GPU time', false, 'Cards times hours that they were held'],
  ['energy_joules', 'Energy', false, 'GPU boards only, by their energy counters'],
  ['tokens_per_joule', 'Tokens per joule', false, 'GPU boards only: without CPUs, fans and the building'],
];

/** A figure of the answer that is one. */
export function figureOf(money: Money, key: string): Figure | null {
  const found = money[key];
  return found && 'reason' in found ? found : null;
}

/** The price in words: `$ 2.50 / GPU h, h100-sxm, revision 14`. */
export function priceText(price: Price | null | undefined): string {
  if (!price || price.usd_per_gpu_hour === null) return 'no price is known';
  return [
    `${formatUsd(price.usd_per_gpu_hour)} / GPU h`,
    price.gpu_model ?? '',
    price.revision ? `revision ${price.revision}` : '',
  ]
    .filter(Boolean)
    .join(', ');
}

/** The panel. */
export function MoneyPanel({ money }: { money: Money | null }) {
  if (!money) return null;
  const shares = ROWS.flatMap(([key]) => figureOf(money, key)?.coverage ?? []);
  const least = shares.length > 0 ? Math.min(...shares) : null;
  const rows = ROWS.flatMap(([key, text, strong, hint]) => {
    const figure = figureOf(money, key);
    return figure ? [{ key, text, strong, hint, figure }] : [];
  });
  // What is absent for one reason is one row.
  const told = rows.filter(({ figure }) => figure.value !== null);
  const absent = new Map<string, string[]>();
  for (const { text, figure } of rows)
    if (figure.value === null) {
      const reason = figure.reason ?? 'not known';
      absent.set(reason, [...(absent.get(reason) ?? []), text]);
    }
  const price = priceText(money.price);
  return (
    <section class="panel money" aria-label="Money">
      <h2>
        Money{' '}
        <span class="quiet" title="Price by the settings of this server">
          <Name text={price} limit={64} />
        </span>
        {least !== null && (
          <span
            class={`badge${least < 0.9 ? ' warning' : ''}`}
            title="Least share of the time that was observed; figures are of what was observed"
          >
            coverage {least.toFixed(2)}
          </span>
        )}
      </h2>
      <table>
        <tbody>
          {told.map(({ key, text, strong, hint, figure }) => (
            <tr key={key}>
              <th scope="row" title={hint}>
                {text}
              </th>
              <td title={[price, figure.explain ?? hint, coverageText(figure)].filter(Boolean).join('\n')}>
                {strong ? (
                  <b>{quantity(figure.value!, figure.unit)}</b>
                ) : (
                  quantity(figure.value!, figure.unit)
                )}
              </td>
            </tr>
          ))}
          {[...absent].map(([reason, names]) => (
            <tr key={reason}>
              <th scope="row" class="names">
                {names.join(' · ')}
              </th>
              <td class="why">
                <span class="absent">—</span> <Sentence text={reason} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function coverageText({ coverage }: Figure): string {
  if (coverage === null || coverage === undefined || coverage >= COVERED) return '';
  return `${Math.round(coverage * 100)} % of the time was observed`;
}
