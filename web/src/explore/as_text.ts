/** A question in other words: for a notebook, for a dashboard. */
import type { Range } from '../charts/range';

/** Python that asks the same of this server and needs only pandas. */
export function pythonOf(origin: string, queries: string[], range: Range, step: number): string {
  const literal = (text: string) => JSON.stringify(text);
  const ask = {
    start: String(range.from / 1000),
    end: String(range.to / 1000),
    step: String(step / 1000),
  };
  return `import json
import os
import urllib.parse
import urllib.request

import pandas as pd


def query_range(query):
    """One row for each sample of the query: its labels, time and value."""
    form = urllib.parse.urlencode({"query": query, **${JSON.stringify(ask)}})
    request = urllib.request.Request(${literal(`${origin}/api/v1/query_range`)}, form.encode())
    if token := os.environ.get("TRUEGAUGE_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request) as answer:
        series = json.load(answer)["data"]["result"]
    rows = [{**s["metric"], "time": t, "value": float(v)} for s in series for t, v in s["values"]]
    frame = pd.DataFrame(rows)
    if not frame.empty:
        frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
    return frame


${queries.map((query, at) => `${String.fromCharCode(97 + at)} = query_range(${literal(query)})`).join('\n')}
`;
}
