/** The unit of a query's values, as far as its text tells. */
import { unitOfName } from '../charts/sections';
import { metricsIn, wordsOf } from './words';

/** Operations after which a value is no longer in the unit of its metric. */
const OTHER = /^(count|group|stdvar|absent|changes|resets|timestamp|sgn|ln|log2|log10|exp|quantile_of|deriv)/;

/** That of the metric it reads; empty where that says nothing, as where it is reckoned with. */
export function unitOf(query: string, known: ReadonlyMap<string, { unit: string }>): string {
  const words = wordsOf(query);
  const names = metricsIn(query, new Set(known.keys()));
  if (names.length !== 1) return '';
  const calls = words.filter((w) => w.kind === 'call').map((w) => w.text.toLowerCase());
  if (calls.some((c) => OTHER.test(c))) return '';
  if (words.some((w) => w.kind === 'sign' && /^[-+*/^%]$/.test(w.text))) return '';
  const perSecond = calls.some((c) => c === 'rate' || c === 'irate');
  const family = names[0].replace(/_bucket$/, '');
  const told = known.get(names[0])?.unit || unitOfName(family);
  // A quantile is of what was measured, over whatever time that was counted; a bucket counts it.
  if (calls.includes('histogram_quantile')) return told;
  const unit = family === names[0] ? told : '';
  if (!perSecond) return unit;
  if (unit === 's') return '';
  return unit === 'J' ? 'W' : unit ? `${unit}/s` : '1/s';
}
