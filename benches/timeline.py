"""The timeline of a step of 100,000 spans: the server's answer, and the browser that draws and moves it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from table import Row, show

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import demo  # noqa: E402  the same way of starting a server

RANKS = 64
MICROBATCHES = 200
LAYERS = 7
STEP = 4386
STEP_NS = 1_250_000_000


def attribute(key: str, value: str | int) -> dict:
    """An attribute as OTLP's JSON has it."""
    return {
        "key": key,
        "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
    }


def spans_of(rank: int, start: int) -> list[dict]:
    """A step of one rank: 1,603 spans that nest four deep."""
    spans: list[dict] = []

    def add(name: str, begin: int, end: int, parent: str | None = None) -> str:
        span = {
            "traceId": f"{rank + 1:032x}",
            "spanId": f"{len(spans) + 1:016x}",
            "name": name,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(end),
        }
        if parent is not None:
            span["parentSpanId"] = parent
        spans.append(span)
        return span["spanId"]

    whole = add("megatron.train.iteration", start, start + STEP_NS)
    spans[0]["attributes"] = [attribute("megatron.iteration", STEP)]
    work = 1_000_000_000 if rank == 17 else 800_000_000 + rank * 10_000
    passes = add("megatron.train.iteration.forward_backward", start + 1000, start + work, whole)
    each = (work - 2000) // MICROBATCHES
    for batch in range(MICROBATCHES):
        begin = start + 1000 + batch * each
        way = "forward" if batch < MICROBATCHES // 2 else "backward"
        within = add(f"megatron.microbatch.{way}", begin, begin + each - 100, passes)
        for layer in range(LAYERS):
            at = begin + layer * (each - 200) // LAYERS
            add("megatron.layer.forward", at, at + (each - 200) // LAYERS - 50, within)
    add("megatron.grad_sync.finish", start + work, start + STEP_NS - 50_000_000, whole)
    add("megatron.train.iteration.optimizer", start + STEP_NS - 50_000_000, start + STEP_NS, whole)
    return spans


def send(url: str, rank: int, spans: list[dict]) -> None:
    """One request of one rank."""
    attributes = [
        attribute("service.name", "bench"),
        attribute("service.instance.id", f"wide-rank{rank}"),
        attribute("nemo.run.id", "wide"),
        attribute("dl.rank", rank),
        attribute("dl.world_size", RANKS),
        attribute("host.name", f"host-{rank // 8 + 1}"),
    ]
    resource = {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]}
    body = json.dumps({"resourceSpans": [resource]}).encode()
    call = urllib.request.Request(f"{url}/v1/traces", body, {"content-type": "application/json"})
    with urllib.request.urlopen(call, timeout=60) as answer:
        said = json.loads(answer.read() or b"{}")
    rejected = said.get("partialSuccess", {}).get("rejectedSpans")
    if rejected not in (None, "0", 0):
        raise SystemExit(f"spans were rejected: {said}")


def browser(url: str) -> dict[str, float]:
    """What `timeline.mjs` measures."""
    command = ["node", str(ROOT / "benches/timeline.mjs"), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"{command} printed no result:\n{done.stdout}{done.stderr}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def timeline_rows(binary: Path, folder: Path) -> list[Row]:
    """Sends, reads, and moves it in Chromium."""
    server, url = demo.start_server(binary, folder / "data", folder / "server.log")
    try:
        start = time.time_ns() - 60_000_000_000
        for rank in range(RANKS):
            send(url, rank, spans_of(rank, start))
        runs = demo.get(f"{url}/api/tg/v1/runs?limit=200")["runs"]
        run_id = next(run["run_id"] for run in runs if run["run"] == "wide")
        asked = f"{url}/api/tg/v1/runs/{run_id}/timeline?part=spans&step={STEP}"
        best = float("inf")
        for _ in range(5):
            begin = time.perf_counter()
            with urllib.request.urlopen(asked, timeout=60) as answer:
                body = answer.read()
            best = min(best, time.perf_counter() - begin)
        drawn = len(json.loads(body)["spans"]["id"])
        what = f"timeline of {drawn:,} spans"
        rows = [Row(f"{what}, server wall", best * 1000, "ms", "bar", None, 1000)]
        if shutil.which(os.environ.get("CHROMIUM", "chromium")):
            page = browser(f"{url}/r/{run_id}")
            rows.append(
                Row(f"{what}, opened in Chromium to drawn", page["drawn_ms"], "ms", "bar", None, 2000)
            )
            for kind in ("zoom", "pan", "scroll"):
                row = f"{what}, {kind}: main thread a frame"
                rows.append(Row(row, page[f"{kind}_ms"], "ms", "bar", None, 16))
        return rows
    finally:
        server.terminate()
        server.wait(30)


def main() -> int:
    """Measures by itself, such as against a build that is not installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/truegauge")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
        (Path(folder) / "data").mkdir()
        rows = timeline_rows(args.binary, Path(folder))
    show(rows)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
