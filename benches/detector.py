"""Measures the straggler detector: what a step costs it, what it holds, and what it says of healthy jobs."""

from __future__ import annotations

import json
import subprocess

from peers import ROOT
from table import Row

EXAMPLE = ROOT / "target/release/examples/detector"
HEALTHY_HOURS = 2
PERCENT_OF_A_CORE_US = 10_000
"""What a step a second may take to stay below 1 % of a core, microseconds."""


def rows() -> list[Row]:
    """CPU time and memory at 1,024 and 16,384 ranks, and false alarms of every kind of noise together."""
    measured = []
    for cost in figures("cost")["costs"]:
        ranks = f"{cost['ranks']:,} ranks" + (", one slow" if cost["slow"] else "")
        what = f"straggler detector, {ranks}, CPU of a step"
        measured.append(Row(what, cost["cpu_us"], "us", "bar", None, PERCENT_OF_A_CORE_US))
        if not cost["slow"]:
            memory = cost["bytes"] / cost["ranks"]
            measured.append(
                Row(f"straggler detector, {ranks}, memory of a rank", memory, "B", "bar", None, 2_000)
            )
    alarms = figures("alarms", str(HEALTHY_HOURS))["alarms"]
    false = sum(alarm["page"] + alarm["warn"] for alarm in alarms)
    what = f"pages and warnings of {HEALTHY_HOURS} healthy h, 1,024 ranks, {len(alarms)} noises"
    # Nothing is the aim; the bar is below one because a ratio needs a number.
    measured.append(Row(what, false, "", "bar", None, 0.5))
    return measured


def figures(*arguments: str) -> dict:
    """What the example prints as its result."""
    done = subprocess.run([str(EXAMPLE), *arguments], capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
