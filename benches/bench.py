"""Measures truegauge against its peers on this machine, in one run, and prints each figure as a ratio.

A bar is what the design asks for. A row that falls short says so; the exit code is 1 then. Other work
on the same cores makes every figure worse: CPU time is compared, wall time is shown where users wait.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict
from pathlib import Path

import agent
import calc
import detector
import engine
import fleet
import otlp
import push
import rules
import verdicts
from process import cpu_seconds, peak_mib
from table import Row, show
from timeline import timeline_rows

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import demo  # noqa: E402  the same way of starting a server

BIN = ROOT / "target/release/truegauge"
OURS = ROOT / ".venv/bin/python"
PEERS = ROOT / "target/bench-venv/bin/python"
MILLION = 1_000_000
RUNS = 10_000


def result(*command: str | Path, env: dict[str, str] | None = None) -> dict:
    """Runs a program that prints `RESULT {json}`."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(env or {})},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"{command} printed no result:\n{done.stdout}{done.stderr}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def log_rows() -> list[Row]:
    """`log` of a scalar and of five."""
    script = ROOT / "benches/log_cost.py"
    ours = result(OURS, "-W", "ignore", script, "truegauge")
    rows = []
    for peer, part in (("metrana", 8), ("wandb", 100), ("trackio", 8)):
        theirs = result(PEERS, "-W", "ignore", script, peer)
        for shape in ("scalar", "five"):
            mine, other = ours[shape]["best_ns"] / 1000, theirs[shape]["best_ns"] / 1000
            rows.append(
                Row(
                    f"log of {shape}, CPU of the caller",
                    mine,
                    "us",
                    f"{peer} offline",
                    other,
                    1 / part,
                )
            )
    rows.append(
        Row(
            "log of scalar, p99 wall, server unreachable",
            ours["latency"]["p99_ns"] / 1000,
            "us",
            "bar",
            None,
            10,
        )
    )
    return rows


TRAINING = ROOT / "benches/training.py"
LENS = ROOT / "target/bench-lens-venv/bin/python"
# What is measured, where it stands in the results of `training.py`, microseconds allowed, and the share of
# the reference's figure that is allowed.
TRAINING_COSTS = (
    ("record of eight values, CPU of the caller", "record", 3, 3 / 44),
    ("record of eight within a span", "record within a span", 3, 3 / 67),
    ("span on, one attribute", "managed_span, one attribute, on", 3, 3 / 28),
    ("traced function, on", "trace_fn, on", 3, 1 / 10),
    ("span off, as a context manager", "managed_span, off", 0.3, 0.3 / 1.9),
    ("traced function, off", "trace_fn, off", 0.1, 1 / 2),
    ("is a span group on, off", "is_span_group_enabled, off", 0.1, None),
)


def training_figures(python: Path, library: str) -> dict:
    """Costs of a library's training telemetry."""
    parts = ("record",) if library == "opentelemetry" else ("record", "disabled")
    found: dict = {}
    for part in parts:
        found |= result(python, "-W", "ignore", TRAINING, library, part)
    return found


def training_rows() -> list[Row]:
    """Training telemetry: a record, spans, and the end when nobody answers."""
    has_lens = LENS.exists()
    if not has_lens:
        print("no Python 3.13 for nemo-lens 0.1.0: its rows are left out", file=sys.stderr)
    # Both sides on one interpreter.
    python = LENS if has_lens else OURS
    ours = training_figures(python, "truegauge")
    rows = [
        Row(what, ours[key]["best_ns"] / 1000, "us", "bar", None, bar) for what, key, bar, _ in TRAINING_COSTS
    ]
    latency = ours["latency"]
    rows += [
        Row("record of eight, p50 wall, sender busy", latency["p50_ns"] / 1000, "us", "bar", None, 3),
        Row("record of eight, p99 wall, sender busy", latency["p99_ns"] / 1000, "us", "bar", None, 10),
    ]
    if has_lens:
        theirs = training_figures(LENS, "nemo-lens")
        rows += [
            Row(what, ours[key]["best_ns"] / 1000, "us", "nemo-lens", theirs[key]["best_ns"] / 1000, share)
            for what, key, _, share in TRAINING_COSTS
            if share is not None
        ]
    theirs = training_figures(PEERS, "opentelemetry")
    mine = ours if python == OURS else training_figures(OURS, "truegauge")
    what, share = TRAINING_COSTS[0][0], TRAINING_COSTS[0][3]
    other = theirs["record"]["best_ns"] / 1000
    rows.append(Row(what, mine["record"]["best_ns"] / 1000, "us", "opentelemetry", other, share))
    return rows + shutdown_rows(python, has_lens)


def shutdown_rows(python: Path, has_lens: bool) -> list[Row]:
    """The end of a training whose backend is not there, with a bound of a second."""
    ours = result(python, "-W", "ignore", TRAINING, "truegauge", "shutdown")
    theirs = result(LENS, "-W", "ignore", TRAINING, "nemo-lens", "shutdown") if has_lens else {}
    rows = []
    for port, figures in ours.items():
        took = figures["shutdown_s"]
        rows.append(Row(f"shutdown within 1 s, {port} port", took, "s", "bar", None, 1.5))
        if has_lens:
            peer = theirs[port]["shutdown_s"]
            rows.append(Row(f"shutdown within 1 s, {port} port", took, "s", "nemo-lens", peer, 1))
    return rows


TICK_LINE = re.compile(r"^(.+?), +(back to back|every \d+ ms) +min ([\d.]+) +p50 ([\d.]+)")


def tick_costs() -> dict[tuple[str, bool], float]:
    """Milliseconds of CPU per tick by what is read: the least back to back, the median paced."""
    command = [str(ROOT / "target/release/examples/tick_cost"), "1000", "20", "700"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    costs = {}
    for line in output.splitlines():
        if found := TICK_LINE.match(line):
            what, pace, least, median = found.groups()
            paced = pace != "back to back"
            costs[what.strip(" ,"), paced] = float(median if paced else least) / 1000
    return costs


def sampler_rows() -> list[Row]:
    """One autocapture tick of the 8 host series, and of our extras apart."""
    ours = tick_costs()
    theirs = result(PEERS, "-W", "ignore", ROOT / "benches/tick_cost_metrana.py")
    close, paced = ours["8 host series", False], ours["8 host series", True]
    extras = sum(cost for (what, is_paced), cost in ours.items() if is_paced and what != "8 host series")
    return [
        Row("sampler tick, CPU back to back", close, "ms", "metrana", theirs["best_ns"] / 1e6, 1 / 8),
        Row("sampler tick, CPU paced", paced, "ms", "metrana", theirs["paced_median_ns"] / 1e6, 1 / 8),
        Row("sampler tick, CPU paced", paced, "ms", "bar", None, 0.15),
        Row("sampler tick with our extras, CPU paced", paced + extras, "ms", "bar", None, 1.0),
    ]


def import_ms(python: Path, module: str) -> float:
    """Wall milliseconds of the first import in a fresh process, files dropped from the page cache before."""
    code = f"""
import importlib.util, os, pathlib, time
folder = pathlib.Path(importlib.util.find_spec("{module}").origin).parent
for path in folder.rglob("*"):
    if path.is_file():
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
begin = time.perf_counter()
import {module}
print("RESULT", (time.perf_counter() - begin) * 1000)
"""
    runs = [result(python, "-W", "ignore", "-c", code) for _ in range(5)]
    return sorted(runs)[2]


def import_rows() -> list[Row]:
    """`import`."""
    ours = import_ms(OURS, "truegauge")
    rows = [Row("import, own files cold", ours, "ms", "bar", None, 60)]
    rows += [
        Row("import, own files cold", ours, "ms", peer, import_ms(PEERS, peer), 1)
        for peer in ("metrana", "wandb", "trackio")
    ]
    return rows


def timed(call, times: int = 5) -> float:
    """Best wall milliseconds of several calls."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        took.append((time.perf_counter() - begin) * 1000)
    return min(took)


def post_points(url: str, queries: list[dict], buckets: int) -> bytes:
    """The binary answer of `POST points`."""
    body = json.dumps(
        {
            "axis": "step",
            "from": None,
            "to": None,
            "buckets": buckets,
            "queries": queries,
        }
    ).encode()
    call = urllib.request.Request(
        f"{url}/api/tg/v1/points",
        data=body,
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(call, timeout=60) as answer:
        return answer.read()


INGEST = """
import numpy as np
import truegauge as tg
tg.init(project_name="bench", run_name="ingest", capture_system_metrics=False)
rng = np.random.default_rng(1)
for block in range(50):
    for series in range(20):
        tg.log(f"metric/{series}", rng.normal(size=2000), step=block * 2000)
    tg.flush()
tg.close()
"""


def server_rows(folder: Path) -> list[Row]:
    """Ingest by push, the page of a long run, the list of many runs."""
    server, url = demo.start_server(BIN, folder / "data", folder / "server.log")
    try:
        env = {
            "TRUEGAUGE_URL": "http://127.0.0.1:9",
            "TRUEGAUGE_SPOOL_DIR": str(folder / "spool"),
        }
        subprocess.run(
            [str(OURS), "-c", INGEST],
            check=True,
            env={**os.environ, **env},
            timeout=300,
        )
        before, begin = cpu_seconds(server.pid), time.perf_counter()
        subprocess.run(
            [str(BIN), "sync", str(folder / "spool"), "--url", url],
            check=True,
            capture_output=True,
            timeout=300,
        )
        wall, cpu = time.perf_counter() - begin, cpu_seconds(server.pid) - before
        rows = [
            Row(
                f"ingest of 2 M samples by push, durable ({2 / wall:.1f} M/s), CPU per M",
                cpu / 2,
                "s",
                "bar",
                None,
                1.0,
            )
        ]

        now_ms = int(time.time() * 1000)
        for part in range(50):
            block = push.series(
                "loss",
                (now_ms - MILLION) * MILLION + part * 20_000 * MILLION,
                MILLION,
                [1 / (i + 1) for i in range(20_000)],
            )
            push.send(
                url,
                push.request(
                    b"m" * 16,
                    part + 1,
                    "million",
                    now_ms,
                    1 if part == 0 else 2,
                    [block],
                ),
            )
        run_id = next(
            r["run_id"] for r in demo.get(f"{url}/api/tg/v1/runs?limit=200")["runs"] if r["run"] == "million"
        )
        query = [{"run_id": run_id, "metric": "loss"}]
        size = struct.unpack_from("<I", post_points(url, query, 1200), 4)[0]
        assert size > 0
        rows.append(
            Row(
                "1,000,000-point run opened, server wall",
                timed(lambda: post_points(url, query, 1200)),
                "ms",
                "bar",
                None,
                300,
            )
        )

        if shutil.which(os.environ.get("CHROMIUM", "chromium")):
            page = result("node", ROOT / "benches/paint.mjs", f"{url}/r/{run_id}")["drawn_ms"]
            what = "1,000,000-point run opened in Chromium, navigation to drawn"
            rows.append(Row(what, page, "ms", "bar", None, 450))

        for number in range(RUNS):
            writer = number.to_bytes(16, "big")
            block = push.series(
                "loss",
                (now_ms - 60_000) * MILLION,
                1000 * MILLION,
                [1.0 + 1 / (i + 1) for i in range(20)],
            )
            push.send(
                url,
                push.request(writer, 1, f"run-{number}", now_ms - 60_000, 1, [block]),
            )
        listed = timed(lambda: demo.get(f"{url}/api/tg/v1/runs?limit=200"))
        sorted_by_metric = timed(
            lambda: demo.get(f"{url}/api/tg/v1/runs?limit=200&sort=loss&filter=state:running")
        )
        rows.append(
            Row(
                f"list of {RUNS:,} runs, first page, wall",
                listed,
                "ms",
                "bar",
                None,
                200,
            )
        )
        rows.append(
            Row(
                f"list of {RUNS:,} runs, filtered, sorted by a metric, wall",
                sorted_by_metric,
                "ms",
                "bar",
                None,
                200,
            )
        )
        rows.extend(interactive_rows(url, run_id))
        rows.append(
            Row(
                "server, peak resident after all this",
                peak_mib(server.pid),
                "MiB",
                "bar",
                None,
                512,
            )
        )
        return rows
    finally:
        demo.stop(server)


INTERACTIVE_MS = 1000
"""What is taken for at once."""


def interactive_rows(url: str, run_id: str) -> list[Row]:
    """How long the main pages take until they take input; nothing where there is no Chromium."""
    if not shutil.which(os.environ.get("CHROMIUM", "chromium")):
        return []
    run = f"/o/-/-/bench/r/{run_id}"
    pages = {
        "/runs": f"Runs, {RUNS:,} runs",
        f"{run}/charts": "Charts, 1,000,000 points",
        f"{run}/overview": "Overview, 1,000,000 points",
        "/fleet": "Fleet",
        "/alerts": "Alerts",
        "/explore": "Explore",
        "/calc/roofline": "Calculators",
    }
    found = result("node", ROOT / "benches/interactive.mjs", url, *pages)
    return [
        Row(f"{text}: navigation to interactive", found[path], "ms", "bar", None, INTERACTIVE_MS)
        for path, text in pages.items()
    ]


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {
        "log": log_rows,
        "sampler": sampler_rows,
        "import": import_rows,
        "training": training_rows,
        "otlp": otlp.rows,
        "server": None,
        "engine": None,
        "timeline": None,
        "agent": agent.rows,
        "scrape": fleet.scrape_rows,
        "pace": fleet.pace_rows,
        "detector": detector.rows,
        "rules": rules.rows,
        "verdicts": verdicts.rows,
        "calc": calc.rows,
    }
    parser.add_argument(
        "part",
        nargs="*",
        default=list(parts),
        help=f"any of {', '.join(parts)} (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--hours", type=float, default=2, help="hours of data for `engine` (default: 2)")
    args = parser.parse_args()
    rows: list[Row] = []
    right = True
    for part in args.part:
        print(f"measuring: {part}", file=sys.stderr)
        if part == "server":
            with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
                (Path(folder) / "data").mkdir()
                rows += server_rows(Path(folder))
        elif part == "timeline":
            with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
                (Path(folder) / "data").mkdir()
                rows += timeline_rows(BIN, Path(folder))
        elif part == "engine":
            figures, equal = engine.run(engine.Load(hours=args.hours), 0.5)
            rows += figures
            right = right and equal
        else:
            rows += parts[part]()
    if args.json:
        print(
            json.dumps(
                [{**asdict(row), "ratio": row.ratio, "holds": row.holds} for row in rows],
                indent=1,
            )
        )
    else:
        show(rows)
    return 0 if right and all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
