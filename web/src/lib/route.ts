/** Which page a path means, and the path of a page. */

/** What runs are looked at: all, or those of one project. */
export interface Scope {
  organization: string;
  workspace: string;
  project: string;
}

/** A run's tabs that exist. */
export const TABS = ['overview', 'charts', 'system', 'ranks', 'training', 'timeline', 'missing'] as const;
/** One of them. */
export type Tab = (typeof TABS)[number];

/** A page. */
export type Route =
  | { page: 'runs'; scope: Scope | null }
  | { page: 'run'; scope: Scope; runId: string; tab: Tab }
  | { page: 'short'; runId: string }
  | { page: 'explore' }
  | { page: 'fleet' }
  | { page: 'gpu'; host: string; gpu: string }
  | { page: 'inference'; model: string | null }
  | { page: 'compare' }
  | { page: 'alerts' }
  | { page: 'remediation' }
  | { page: 'calc'; tool: string | null }
  | { page: 'login' }
  | { page: 'home' }
  | { page: 'missing' };

const part = (text: string) => (text === '' ? '-' : encodeURIComponent(text === '-' ? '%2D' : text));

function unpart(text: string): string {
  if (text === '-') return '';
  try {
    const plain = decodeURIComponent(text);
    return plain === '%2D' ? '-' : plain;
  } catch {
    return text;
  }
}

/** Reads a path. */
export function parseRoute(path: string): Route {
  const [first, ...rest] = path.split('/').filter((piece) => piece !== '');
  if (first === undefined) return { page: 'home' };
  if (first === 'runs' && rest.length === 0) return { page: 'runs', scope: null };
  if (first === 'explore' && rest.length === 0) return { page: 'explore' };
  if (first === 'fleet' && rest.length === 0) return { page: 'fleet' };
  if (first === 'fleet' && rest.length === 2)
    return { page: 'gpu', host: unpart(rest[0]), gpu: unpart(rest[1]) };
  if (first === 'inference' && rest.length <= 1)
    return { page: 'inference', model: rest.length === 1 ? unpart(rest[0]) : null };
  if (first === 'compare' && rest.length === 0) return { page: 'compare' };
  if (first === 'alerts' && rest.length === 0) return { page: 'alerts' };
  if (first === 'remediation' && rest.length === 0) return { page: 'remediation' };
  if (first === 'calc' && rest.length <= 1)
    return { page: 'calc', tool: rest.length === 1 ? unpart(rest[0]) : null };
  if (first === 'login' && rest.length === 0) return { page: 'login' };
  if (first === 'r' && rest.length === 1) return { page: 'short', runId: unpart(rest[0]) };
  if (first !== 'o' || rest.length < 4) return { page: 'missing' };
  const scope = { organization: unpart(rest[0]), workspace: unpart(rest[1]), project: unpart(rest[2]) };
  if (rest[3] === 'runs' && rest.length === 4) return { page: 'runs', scope };
  if (rest[3] === 'r' && rest.length >= 5) {
    const tab = TABS.find((one) => one === rest[5]) ?? 'charts';
    return { page: 'run', scope, runId: unpart(rest[4]), tab };
  }
  return { page: 'missing' };
}

/** The Runs page of a scope. */
export function runsPath(scope: Scope | null): string {
  if (!scope) return '/runs';
  return `/o/${part(scope.organization)}/${part(scope.workspace)}/${part(scope.project)}/runs`;
}

/** A run's page. */
export function runPath(scope: Scope, runId: string, tab: Tab = 'charts'): string {
  return runsPath(scope).replace(/runs$/, `r/${encodeURIComponent(runId)}/${tab}`);
}

/** A GPU's page; `uuid` says which card is meant when another one has its number now. */
export function gpuPath(host: string, gpu: string, uuid = ''): string {
  return `/fleet/${part(host)}/${part(gpu)}${uuid && `?uuid=${encodeURIComponent(uuid)}`}`;
}

/** The Inference page; of one model where one is named. */
export function inferencePath(model: string | null = null): string {
  return model === null ? '/inference' : `/inference/${part(model)}`;
}

/** The Remediation page with the state of a host, and of a card of it where one is meant. */
export function remediationPath(host: string, gpu = ''): string {
  return `/remediation?${new URLSearchParams({ host, ...(gpu && { gpu }) })}`;
}

/** The Calculators page; of one tool where one is named. */
export function calcPath(tool: string | null = null): string {
  return tool === null ? '/calc' : `/calc/${part(tool)}`;
}
