/** Text that came from outside: made visible, cut, never interpreted. */

// Controls, format characters (bidi, zero-width, tags), line and paragraph separators.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Writes control, bidi and zero-width characters as escapes such as `\u202e`. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (char) => {
    const code = char.codePointAt(0)!;
    if (char === '\n') return '\\n';
    if (char === '\t') return '\\t';
    return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

/** Cuts the middle out of a text of more than `limit` characters; both ends stay. */
export function cutMiddle(text: string, limit = 48): string {
  const chars = [...text];
  if (chars.length <= limit) return text;
  const head = Math.ceil((limit - 1) / 2);
  return `${chars.slice(0, head).join('')}…${chars.slice(chars.length - (limit - 1 - head)).join('')}`;
}

/** A name as a page shows it. */
export function shown(text: string, limit = 48): string {
  return cutMiddle(visible(text), limit);
}

/** Labels as `host="a", rank="3"`; empty for none. */
export function labelText(labels: Record<string, string>): string {
  return Object.entries(labels)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => visible(`${key}=${JSON.stringify(value)}`))
    .join(', ');
}
