/** The pages of the bar: what follows `g`, what they are called, and where they are. */
export const PAGES: [letter: string, name: string, path: string][] = [
  ['r', 'Runs', '/runs'],
  ['f', 'Fleet', '/fleet'],
  ['i', 'Inference', '/inference'],
  ['a', 'Alerts', '/alerts'],
  ['m', 'Remediation', '/remediation'],
  ['e', 'Explore', '/explore'],
  ['c', 'Calculators', '/calc'],
];
