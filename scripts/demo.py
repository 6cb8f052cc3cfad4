"""`make demo`: starts a server of its own, trains a model in the foreground and shows both.

A second act plays a minute of a made-up cluster and prints what the server concludes of it.
Stays up until Ctrl-C; with `--once` it ends with exit code 0 after both and leaves screenshots where
Chromium is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import story

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "demo"
READY_SECONDS = 30
SCREENSHOT_SECONDS = 60


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url: str) -> dict:
    """The JSON behind `url`."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def start_server(binary: Path, data: Path, log: Path) -> tuple[subprocess.Popen, str]:
    """Starts `truegauge up` on free ports and waits until it is ready."""
    ports = [free_port() for _ in range(3)]
    url = f"http://127.0.0.1:{ports[0]}"
    command = [
        str(binary),
        "up",
        "--data-dir",
        str(data),
        "--listen",
        f"127.0.0.1:{ports[0]}",
        "--otlp-grpc-listen",
        f"127.0.0.1:{ports[1]}",
        "--otlp-http-listen",
        f"127.0.0.1:{ports[2]}",
        *story.server_options(data),
    ]
    environment = {**os.environ, "TRUEGAUGE_SPOOL_DIR": str(data / "spool")}
    with log.open("wb") as stream:
        server = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError):
            get(f"{url}/readyz")
            return server, url
        time.sleep(0.05)
    server.kill()
    raise SystemExit(f"the server did not become ready, its log says:\n{log.read_text(errors='replace')}")


def train(url: str, data: Path, run_name: str, seconds: float) -> None:
    """Runs the example in the foreground, its progress bar on this terminal."""
    environment = {
        **os.environ,
        "TRUEGAUGE_URL": url,
        "TRUEGAUGE_SPOOL_DIR": str(data / "spool"),
        "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS": "1",
        # Spans for the Timeline; the run itself has every value of the instruments.
        "MEGATRON_OTEL_ENABLED": "1",
        "MEGATRON_OTEL_METRICS_ENABLED": "0",
        "MEGATRON_OTEL_SPAN_GROUPS": "per_step",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    script = ROOT / "examples" / "train_digits.py"
    command = [
        sys.executable,
        str(script),
        "--run-name",
        run_name,
        "--seconds",
        str(seconds),
    ]
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise SystemExit(f"the training ended with exit code {code}")


def summarise(url: str, run_name: str) -> str:
    """Prints what the server now holds of the run; returns the address of its page."""
    rows = get(f"{url}/api/tg/v1/runs")["runs"]
    row = next((row for row in rows if row["run"] == run_name), None)
    if row is None:
        raise SystemExit(f"the server has no run {run_name!r} after the training: {rows}")
    series = get(f"{url}/api/tg/v1/runs/{row['run_id']}/metrics")["metrics"]
    print(f"\n{run_name}: {row['state']}, {row['points']:,} points in {len(series)} series\n")
    print(f"  {'series':<44} {'points':>8} {'last step':>10} {'last':>16}")
    for entry in series:
        labels = ",".join(
            f"{key}={value}" for key, value in entry["labels"].items() if key not in ("host", "pid")
        )
        name = entry["display"] + (f" {{{labels}}}" if labels else "")
        last = entry["last"]
        shown = f"{last:,.0f}" if isinstance(last, int | float) and abs(last) >= 1e6 else last
        shown = f"{shown:,.4g}" if isinstance(shown, float) else shown
        step = "" if entry["last_step"] is None else f"{entry['last_step']:,}"
        print(f"  {name[:44]:<44} {entry['points']:>8,} {step:>10} {shown!s:>16}")
    for lack in get(f"{url}/api/tg/v1/runs/{row['run_id']}/missing?capture=false")["missing"]:
        print(f"\n  {'missing' if lack['alarm'] else 'not there, no fault'}: {lack['text']}")
    return f"{url}/r/{row['run_id']}"


def screenshot(page: str, target: Path) -> str | None:
    """Takes a picture of `page` with Chromium; returns why there is none, or None."""
    browser, node = shutil.which(os.environ.get("CHROMIUM", "chromium")), shutil.which("node")
    if browser is None or node is None:
        return "Chromium is not installed"
    command = [node, str(ROOT / "scripts" / "screenshot.mjs"), page, str(target)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SCREENSHOT_SECONDS,
            check=False,
            env={**os.environ, "CHROMIUM": browser},
        )
    except subprocess.TimeoutExpired:
        return f"Chromium did not answer in {SCREENSHOT_SECONDS} s"
    return None if target.exists() else done.stderr.strip().splitlines()[-1]


def picture(page: str, name: str) -> None:
    """Takes a picture of `page` and says where it is."""
    target = OUT / f"{name}.png"
    target.unlink(missing_ok=True)
    why_not = screenshot(page, target)
    print(f"screenshot: {target.relative_to(ROOT) if why_not is None else f'none, {why_not}'}", flush=True)


def stop(server: subprocess.Popen) -> None:
    """Ends the server and waits for it."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, required=True, help="the built program")
    parser.add_argument("--once", action="store_true", help="end after the summary")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to train (default: 20)")
    parser.add_argument(
        "--story-seconds", type=float, default=story.SECONDS, help="how long the second act is; 0 for none"
    )
    args = parser.parse_args()

    # However it is ended, the server ends with it; a shell's background job ignores Ctrl-C otherwise.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    OUT.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="data-", dir=OUT))
    server, url = start_server(args.binary, data, OUT / "server.log")

    def look(pages: dict[str, str]) -> None:
        if args.once:
            for name, path in pages.items():
                picture(f"{url}{path}", name)

    try:
        print(f"server: {url}")
        train(url, data, "digits", args.seconds)
        page = summarise(url, "digits")
        if args.once:
            picture(page, "run")
        print(f"\nopen {page}, whose tabs Training and Timeline say where each step's time goes", flush=True)
        if args.story_seconds > 0:
            story.play(args.binary, url, data, args.story_seconds, look)
        if not args.once:
            print("the server stays up; Ctrl-C ends it and removes its data", flush=True)
            server.wait()
    except KeyboardInterrupt:
        # Whoever read what this printed may be gone.
        print(file=sys.stderr)
    finally:
        stop(server)
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
