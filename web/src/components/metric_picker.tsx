/** Chooses the metric whose last value and line the run table shows. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { MetricRow } from '../lib/answers';
import { askJson } from '../lib/api';
import { visible } from '../lib/text';

/** A button; opened, it lists the metrics of the run that is asked for `names`. */
export function MetricPicker({
  value,
  shown,
  runId,
  choose,
}: {
  value: string;
  shown: string;
  runId: string | undefined;
  choose: (metric: string) => void;
}) {
  const [open, setOpen] = useState(false);
  const [names, setNames] = useState<string[]>([]);
  const [typed, setTyped] = useState('');
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector('input')?.focus();
    const outside = (event: Event) => !root.current?.contains(event.target as Node) && setOpen(false);
    document.addEventListener('pointerdown', outside);
    const controller = new AbortController();
    if (runId) {
      askJson<{ metrics: MetricRow[] }>(`runs/${runId}/metrics`, { signal: controller.signal })
        .then((answer) => setNames([...new Set(answer.metrics.map((m) => m.display || m.name))].sort()))
        .catch(() => setNames([]));
    }
    return () => {
      document.removeEventListener('pointerdown', outside);
      controller.abort();
    };
  }, [open, runId]);
  const pick = (metric: string) => {
    setOpen(false);
    setTyped('');
    choose(metric);
  };
  const found = names.filter((n) => n.toLowerCase().includes(typed.toLowerCase())).slice(0, 50);
  return (
    <div class="menu" ref={root} onKeyDown={(e) => e.key === 'Escape' && setOpen(false)}>
      <button
        type="button"
        class="control"
        aria-haspopup="dialog"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        Metric: {visible(shown)} <span aria-hidden="true">▾</span>
      </button>
      {open && (
        <div class="popover picker">
          <input
            aria-label="Metric"
            placeholder="metric"
            value={typed}
            onInput={(e) => setTyped(e.currentTarget.value)}
            onKeyDown={(e) => e.key === 'Enter' && typed && pick(found[0] ?? typed)}
          />
          {value && (
            <button type="button" onClick={() => pick('')}>
              by itself: the loss
            </button>
          )}
          {found.map((name) => (
            <button type="button" key={name} aria-pressed={name === value} onClick={() => pick(name)}>
              {visible(name)}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
