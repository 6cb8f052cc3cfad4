"""`scripts/demo.py`: however it is ended, its server and its data go with it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from conftest import ROOT, wait_for


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda how: how.name)
def test_an_ended_demo_leaves_nothing_behind(binary, how):
    folder = ROOT / "out" / "demo"
    before = set(folder.glob("data-*"))
    script = str(ROOT / "scripts" / "demo.py")
    command = [sys.executable, script, "--binary", str(binary), "--seconds", "1", "--story-seconds", "0"]
    demo = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        # As a shell's background job has it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    url = ""
    for line in demo.stdout or []:
        if found := re.match(r"server: (\S+)", line):
            url = found.group(1)
        if "the server stays up" in line:
            break
    assert demo.stdout
    demo.stdout.close()
    made: set[Path] = set(folder.glob("data-*")) - before
    assert url
    assert is_up(url)
    assert made
    demo.send_signal(how)
    demo.wait(60)
    wait_for(lambda: not is_up(url), "the server is gone")
    assert not set(folder.glob("data-*")) & made


def test_the_second_act_concludes_all_that_went_wrong(binary, monkeypatch):
    # The ranks' cards are known by what their processes capture.
    monkeypatch.delenv("TRUEGAUGE_CAPTURE_SYSTEM_METRICS")
    # What is concluded when depends on the machine's load; that it is does not.
    script = str(ROOT / "scripts" / "demo.py")
    command = [sys.executable, script, "--binary", str(binary), "--seconds", "1", "--story-seconds", "240"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    told: list[str] = []
    for line in demo.stdout or []:
        told.append(line)
        if "the server stays up" in line:
            break
    assert demo.stdout
    demo.stdout.close()
    demo.send_signal(signal.SIGINT)
    demo.wait(60)
    text = "".join(told)
    assert "left out" not in text
    assert "not concluded" not in text
    assert re.search(r"slow rank +Rank 6 is slow\. .*thermal", text)
    assert re.search(r"incident +serve-0, GPU 0: Xid 48 and Xid 63, one incident", text)
    assert re.search(r"engine +vllm on \S+ restarted", text)
    assert re.search(r"remediation +serve-0 in a dry run, would run: kubectl cordon serve-0", text)
    assert re.search(r"money +The job costs \$ 20\.00 an hour", text)
