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
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--binary", str(binary), "--seconds", "1"]
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
