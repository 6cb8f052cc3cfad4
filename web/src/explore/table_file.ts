/** Answers as a CSV file: one line for each value. */
import type { RangeAnswer } from './answer';

const cell = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Columns: query, time, every label, value. */
export function csvOf(answers: { query: string; answer: RangeAnswer }[]): string {
  const labels = [
    ...new Set(answers.flatMap(({ answer }) => answer.series.flatMap((s) => Object.keys(s.labels)))),
  ].sort();
  const lines = [['query', 'time', ...labels, 'value'].map(cell).join(',')];
  for (const { query, answer } of answers) {
    const times = Array.from(answer.x, (ms) => new Date(ms).toISOString());
    for (const series of answer.series) {
      const told = labels.map((label) => cell(series.labels[label] ?? '')).join(',');
      series.values.forEach((value, at) => {
        if (series.present[at] === 0) return;
        lines.push(`${cell(query)},${times[at]},${told}${told && ','}${spelled(value)}`);
      });
    }
  }
  return `${lines.join('\n')}\n`;
}

function spelled(value: number): string {
  if (value === Infinity) return '+Inf';
  return value === -Infinity ? '-Inf' : String(value);
}
