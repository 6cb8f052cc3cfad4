"""A far storage behind the server: what Python logs and asks is the same, and an outage loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from conftest import DEADLINE_SECONDS, ROOT, Server, free_port, wait_for

import truegauge as tg


class Cluster:
    """Debian's Prometheus with its receiver of remote write."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("prometheus")
        assert binary, "`prometheus` is missing: apt-get install prometheus"
        self.url = f"http://127.0.0.1:{free_port()}"
        config = folder / "prometheus.yml"
        config.write_text("storage: {tsdb: {out_of_order_time_window: 1d}}\n")
        command = [
            binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'far'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--web.enable-remote-write-receiver",
        ]
        with (folder / "prometheus.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._is_ready, "the far storage was ready")

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).status == 200
        return False

    def value(self, query: str) -> str | None:
        """The one value of a query now."""
        question = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{question}", timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        return result[0]["value"][1] if result else None


@pytest.fixture
def cluster(tmp_path):
    """A far storage of this test's own."""
    far = Cluster(tmp_path)
    yield far
    far.process.kill()
    far.process.wait(DEADLINE_SECONDS)


def before(cluster: Cluster, binary: Path, folder: Path) -> Server:
    """A server before the far storage."""
    folder.mkdir()
    server = Server(binary, folder)
    server.environment |= {
        "TRUEGAUGE_STORAGE_KIND": "prometheus",
        "TRUEGAUGE_STORAGE_WRITE_URL": f"{cluster.url}/api/v1/write",
        "TRUEGAUGE_STORAGE_QUERY_URL": cluster.url,
    }
    server.start()
    return server


def test_what_is_logged_is_asked_of_the_far_storage_and_read_back_elsewhere(
    cluster, binary, tmp_path, monkeypatch
):
    first, second = (before(cluster, binary, tmp_path / name) for name in ("one", "two"))
    try:
        for name, value in first.environment_of_client().items():
            monkeypatch.setenv(name, value)
        with tg.init(organization="acme", project_name="p", run_name="far"):
            for step in range(500):
                tg.log({"train/loss": 1.0 / (step + 1), "lr": 0.1}, step=step)
        count = 'count_over_time(train_loss{run="far",organization="acme"}[1h])'
        wait_for(lambda: cluster.value(count) == "500", "every point was at the far storage")
        assert cluster.value('count_over_time(truegauge_step{run="far"}[1h])') == "500"
        assert tg.query(count).series[0].values == [500.0]
        by_name = tg.query('count_over_time({"train/loss"}[1h])')
        assert (by_name.series[0].values, by_name.warnings) == ([500.0], [])
        (run,) = first.runs()
        here = first.points(run["run_id"], "train/loss")
        assert here == [(step, 1.0 / (step + 1)) for step in range(500)]
        assert second.runs() == []
        assert second.points(run["run_id"], "train/loss") == here
        assert [row["run"] for row in second.runs()] == ["far"]
    finally:
        first.kill()
        second.kill()


def test_an_outage_under_load_loses_and_doubles_nothing(binary):
    program = [sys.executable, "-W", "ignore", ROOT / "benches" / "far_outage.py"]
    limits = ["--minutes", "0.05", "--clients", "1", "--series", "20", "--bin", binary]
    done = subprocess.run(
        [str(part) for part in (*program, *limits)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_SECONDS,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    result = json.loads(line.removeprefix("RESULT "))
    assert result["samples"] > 0
    assert (result["missing"], result["doubled"], result["refused"]) == (0, 0, 0)
