"""What judging the steps of a wide job costs the server, while it stores them.

`python benches/verdicts.py [--seconds 30]`: `truegauge simulate` plays a job of 1,024 ranks and one
of 16,384, with a step of 1.2 s and waits of all ranks. CPU is what the server counts of its verdicts.
"""

from __future__ import annotations

import argparse
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

BIN = ROOT / "target/release/truegauge"
SETTLED_SECONDS = 15
SCENARIO = """name = "wide"
seed = 3
[[nodes]]
host = "n#"
count = {nodes}
gpus = 8
[[jobs]]
name = "wide"
compute = 0.85
communication = 0.15
tokens = 65536.0
parameters = 7e9
hosts = ["{first}..{last}"]
"""


def spent(url: str) -> tuple[float, int]:
    """CPU seconds of verdicts so far, and the ranks that are judged."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        lines = [
            line.split()
            for line in page.read().decode().splitlines()
            if line.startswith("truegauge_verdicts")
        ]
    found = {name: float(value) for name, value in lines}
    return found["truegauge_verdicts_cpu_seconds_total"], int(found["truegauge_verdicts_ranks"])


def share(folder: Path, ranks: int, seconds: float) -> float:
    """Percent of one core that verdicts on a job of so many ranks take."""
    nodes = ranks // 8
    width = len(str(nodes - 1))
    text = SCENARIO.format(nodes=nodes, first=f"n{0:0{width}}", last=f"n{nodes - 1}")
    (folder / "wide.toml").write_text(text)
    server, url = demo.start_server(BIN, folder / "data", folder / "server.log")
    play = [BIN, "simulate", folder / "wide.toml", "--server", url, "--no-nodes"]
    simulated = subprocess.Popen(play, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(SETTLED_SECONDS)
        (before, _), begun = spent(url), time.monotonic()
        time.sleep(seconds)
        (after, judged), ended = spent(url), time.monotonic()
    finally:
        simulated.terminate()
        simulated.wait()
        demo.stop(server)
    if judged != ranks:
        raise RuntimeError(f"{judged} ranks are judged, {ranks} were to be")
    return (after - before) / (ended - begun) * 100


def rows(seconds: float = 30) -> list[Row]:
    """The table's rows."""
    made = []
    for ranks, most in ((1_024, 1.0), (16_384, 5.0)):
        with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
            (Path(folder) / "data").mkdir()
            percent = share(Path(folder), ranks, seconds)
        name = f"verdicts on {ranks:,} ranks, beside storing their steps"
        made.append(Row(name, percent, "% of a core", "bar", None, most))
    return made


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    show(rows(parser.parse_args().seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
