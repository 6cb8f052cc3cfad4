/** Times in milliseconds since the epoch, spans in seconds. */

/** Which clock a page writes times in. */
export type Zone = 'utc' | 'local';

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

interface Parts {
  year: number;
  month: number;
  day: number;
  hour: number;
  minute: number;
  second: number;
  ms: number;
}

function parts(time: number, zone: Zone): Parts {
  const date = new Date(time);
  const utc = zone === 'utc';
  return {
    year: utc ? date.getUTCFullYear() : date.getFullYear(),
    month: utc ? date.getUTCMonth() : date.getMonth(),
    day: utc ? date.getUTCDate() : date.getDate(),
    hour: utc ? date.getUTCHours() : date.getHours(),
    minute: utc ? date.getUTCMinutes() : date.getMinutes(),
    second: utc ? date.getUTCSeconds() : date.getSeconds(),
    ms: utc ? date.getUTCMilliseconds() : date.getMilliseconds(),
  };
}

const two = (value: number) => value.toString().padStart(2, '0');

/** `11:34` */
export function formatMinute(time: number, zone: Zone): string {
  const p = parts(time, zone);
  return `${two(p.hour)}:${two(p.minute)}`;
}

/** `11:34:07` */
export function formatSecond(time: number, zone: Zone): string {
  return `${formatMinute(time, zone)}:${two(parts(time, zone).second)}`;
}

/** `29 Nov` */
export function formatDay(time: number, zone: Zone): string {
  const p = parts(time, zone);
  return `${p.day} ${MONTHS[p.month]}`;
}

/** `2026-11-30 11:34:07 UTC`, for titles and files. */
export function formatFull(time: number, zone: Zone): string {
  const p = parts(time, zone);
  const day = `${p.year}-${two(p.month + 1)}-${two(p.day)}`;
  return `${day} ${formatSecond(time, zone)}${zone === 'utc' ? ' UTC' : ''}`;
}

/** The minute when it was today, else the day, else the day with its year. */
export function formatWhen(time: number, now: number, zone: Zone): string {
  const [a, b] = [parts(time, zone), parts(now, zone)];
  if (a.year === b.year && a.month === b.month && a.day === b.day) return formatMinute(time, zone);
  return a.year === b.year ? formatDay(time, zone) : `${formatDay(time, zone)} ${a.year}`;
}

/** A span as `38 s`, `14 m`, `2 h 22 min` or `3 d 4 h`. */
export function formatSpan(seconds: number): string {
  if (!Number.isFinite(seconds)) return '—';
  if (seconds < 0) return `\u2212${formatSpan(-seconds)}`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How old something is: `3 s`, never finer. */
export function formatAge(seconds: number): string {
  return seconds < 1 ? '0 s' : formatSpan(Math.floor(seconds));
}

/** Tick labels of a wall-time axis whose ticks are `step` ms apart. */
export function formatTimeTicks(values: number[], step: number, zone: Zone): string[] {
  return values.map((value, at) => {
    const p = parts(value, zone);
    const midnight = p.hour === 0 && p.minute === 0 && p.second === 0 && p.ms === 0;
    if (step >= 86_400_000 || (midnight && at > 0)) return formatDay(value, zone);
    if (step >= 60_000) return formatMinute(value, zone);
    if (step >= 1000) return formatSecond(value, zone);
    return `${formatSecond(value, zone)}.${p.ms.toString().padStart(3, '0')}`;
  });
}

/** Tick labels of an axis of seconds since the start of the run. */
export function formatRelativeTicks(values: number[], step: number): string[] {
  return values.map((value) => {
    if (value === 0) return '0';
    if (step < 1) return `${Number(value.toFixed(6))} s`;
    const sign = value < 0 ? '\u2212' : '';
    const seconds = Math.round(Math.abs(value));
    const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    if (step >= 3600) return `${sign}${h} h`;
    if (step >= 60) return sign + (h > 0 ? `${h} h ${two(m)}` : `${m} m`);
    return sign + (h > 0 ? `${h}:${two(m)}:${two(s)}` : m > 0 ? `${m}:${two(s)}` : `${s} s`);
  });
}
