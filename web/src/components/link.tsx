/** A link to another page of this server, without loading it anew. */
import type { ComponentChildren } from 'preact';
import { open } from '../lib/address';

/** Theme and zone go along; the rest of the address belongs to the page. */
export function keptParams(): [name: string, value: string][] {
  const now = new URLSearchParams(window.location.search);
  return ['theme', 'tz'].flatMap((name) => (now.has(name) ? [[name, now.get(name)!]] : []));
}

/** These as the end of an address. */
export function keptQuery(): string {
  const text = new URLSearchParams(keptParams()).toString();
  return text ? `?${text}` : '';
}

/** An anchor. */
export function Link(props: {
  href: string;
  class?: string;
  title?: string;
  current?: boolean;
  tabIndex?: number;
  children: ComponentChildren;
}) {
  const click = (event: MouseEvent) => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const [path, query] = props.href.split('?');
    const all = new URLSearchParams(query);
    for (const [name, value] of new URLSearchParams(keptQuery())) all.set(name, value);
    const text = all.toString();
    open(path + (text ? `?${text}` : ''));
    window.scrollTo(0, 0);
  };
  return (
    <a
      href={props.href}
      class={props.class}
      title={props.title}
      tabIndex={props.tabIndex}
      aria-current={props.current ? 'page' : undefined}
      onClick={click}
    >
      {props.children}
    </a>
  );
}
