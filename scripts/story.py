"""The second act of `make demo`: a minute in a made-up cluster, and what the server concludes of it.

The cluster is played by `truegauge simulate` with real agents, ranks and pages of metrics; only the cards,
the kernel's log and the requests are made up. What is printed is what the server's API answers.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = ROOT / "examples" / "scenarios" / "story.toml"
POLICY = ROOT / "examples" / "remediation" / "story.toml"
JOB = "pretrain-story"
ENGINE_HOST = "serve-0"
DRIVER = "libfake_nvml.so"
SECONDS = 60
"""How long the play lasts unless told; what is concluded by then is printed, and what is not is said."""
START_SECONDS = 20
LOOK_SECONDS = 120
CONFIG = """[site]
prices = ["h100-sxm=2.50"]
price_revision = "demo"
pue = 1.3
server_overhead_factor = 1.4
objectives = ["acme/chat-8b ttft=2.5 itl=0.1 goodput=0.95"]

[remediation]
interval = "1s"
"""


def server_options(data: Path) -> list[str]:
    """What the server has to be started with for the second act; writes the files that they name."""
    scrape, config = data / "scrape.yml", data / "truegauge.toml"
    scrape.write_text('{"scrape_configs": []}\n')
    config.write_text(CONFIG)
    return [
        *("--config", str(config)),
        *("--scrape-config", str(scrape)),
        *("--remediation-policy-file", str(POLICY)),
    ]


def get(url: str, **parameters: str) -> dict:
    """The JSON behind `url`."""
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    with urllib.request.urlopen(url + query, timeout=10) as answer:
        return json.load(answer)


class Story:
    """What is waited for, and what has been told."""

    def __init__(self, url: str) -> None:
        self.url, self.api, self.began = url, f"{url}/api/tg/v1", time.time()
        self.run_id: str | None = None

    def slow_rank(self) -> tuple[str, str] | None:
        """The rank that slows its job, by name."""
        if self.run_id is None:
            rows = get(f"{self.api}/runs")["runs"]
            self.run_id = next((row["run_id"] for row in rows if row["run"] == JOB), None)
        if self.run_id is None:
            return None
        verdicts = get(f"{self.api}/runs/{self.run_id}/health")["verdicts"]
        slow = [one for one in verdicts if one["class"] == "straggler"]
        # Why it is slow shows a few samples of its card later.
        found = next((one for one in slow if one["cause"] != "unknown"), None)
        return found and (f"{found['claim']}. {found['sentence']}", f"/r/{self.run_id}")

    def engine_restart(self) -> tuple[str, str] | None:
        """The engine whose counters began anew."""
        events = get(f"{self.api}/events", kind="engine", **{"from": self.since()})["events"]
        found = next((one for one in events if "restart" in one["text"]), None)
        return found and (found["text"], "/inference")

    def incident(self) -> tuple[str, str] | None:
        """The fault of a card, with what is to be done."""
        found = next(iter(get(f"{self.api}/incidents", state="open", host=ENGINE_HOST)["incidents"]), None)
        if found is None or len(found["codes"]) < 2:
            return None
        codes = " and ".join(code["code"] for code in found["codes"])
        place = f"{found['host']}, GPU {found['gpu']}"
        return f"{place}: {codes}, one incident. To do: {found['action']}.", "/fleet"

    def drain(self) -> tuple[str, str] | None:
        """What remediation would have run."""
        audit = get(f"{self.api}/remediation")["audit"]
        rehearsed = (one for one in audit if one["host"] == ENGINE_HOST and one["dry_run"])
        found = next((one for one in rehearsed if one["commands"]), None)
        return found and (
            f"{found['host']} in a dry run, would run: {'; '.join(found['commands'])}",
            "/remediation",
        )

    def since(self) -> str:
        """The start of the story, milliseconds since the epoch."""
        return str(int(self.began * 1e3))

    def money(self) -> tuple[str, str] | None:
        """What the job costs, and what the slow rank takes of it."""
        if self.run_id is None:
            return None
        money = get(f"{self.api}/runs/{self.run_id}/health")["money"]
        hourly = money["usd_per_hour"]["value"]
        lost = money["usd_lost_to_verdicts"]["value"]
        if hourly is None or lost is None:
            return None
        return f"The job costs $ {hourly:,.2f} an hour; $ {lost:,.4f} so far went to waiting.", ""


def ask(question: Callable[[], tuple[str, str] | None]) -> tuple[str, str] | None:
    """The answer, none while the server has none."""
    with contextlib.suppress(OSError):
        return question()
    return None


def play(binary: Path, url: str, data: Path, seconds: float, look: Callable[[dict[str, str]], None]) -> None:
    """Plays the scenario and prints what is concluded.

    At the end of it `look` is called with the paths of the pages that show it, by name.
    """
    if not any((folder / DRIVER).exists() for folder in (binary.parent, binary.parent / "deps")):
        print("\nsecond act: left out, `cargo build --release -p fake-nvml` makes the driver that it needs")
        return
    print(f"\nsecond act: {seconds:.0f} s of a made-up cluster, whose parts are real processes", flush=True)
    folder = data / "play"
    command = [
        *(str(binary), "simulate", str(SCENARIO), "--server", url),
        *("--dir", str(folder), "--interval", "1s", "--for", str(seconds + LOOK_SECONDS)),
    ]
    with (data.parent / "story.log").open("wb") as stream:
        actors = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        scrape(actors, folder / "scrape.yml", data / "scrape.yml", url)
        look(conclude(Story(url), actors, seconds))
    finally:
        if actors.poll() is None:
            actors.terminate()
            try:
                actors.wait(15)
            except subprocess.TimeoutExpired:
                actors.kill()
                actors.wait()


def scrape(actors: subprocess.Popen, written: Path, read: Path, url: str) -> None:
    """Has the server scrape the engines, once it is written where they are."""
    deadline = time.monotonic() + START_SECONDS
    while not written.exists():
        if actors.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the made-up cluster did not start: see {written.parent}")
        time.sleep(0.05)
    shutil.copyfile(written, read)
    request = urllib.request.Request(f"{url}/-/reload", method="POST")
    urllib.request.urlopen(request, timeout=10).close()


def conclude(story: Story, actors: subprocess.Popen, seconds: float) -> dict[str, str]:
    """Prints each conclusion when it is there; the paths of their pages."""
    open_questions = {
        "slow rank": story.slow_rank,
        "incident": story.incident,
        "engine": story.engine_restart,
        "remediation": story.drain,
    }
    pages: dict[str, str] = {"alerts": "/alerts"}
    is_terminal = sys.stdout.isatty()
    while open_questions and actors.poll() is None:
        second = int(time.time() - story.began)
        if second >= seconds:
            break
        for name, question in list(open_questions.items()):
            if answer := ask(question):
                tell(second, name, *answer, story.url)
                del open_questions[name]
                pages[name.replace(" ", "-")] = answer[1]
        if is_terminal:
            waiting = ", ".join(open_questions) or "nothing more"
            print(f"\r\033[K  {second:>2} of {seconds:.0f} s, waiting for: {waiting}", end="", flush=True)
        time.sleep(0.5)
    if is_terminal:
        print("\r\033[K", end="")
    if answer := ask(story.money):
        tell(int(time.time() - story.began), "money", *answer, "")
    for name in open_questions:
        print(f"  not concluded within {seconds:.0f} s: {name}")
    return pages


def tell(second: int, name: str, text: str, page: str, url: str) -> None:
    """Prints a conclusion and where to look at it."""
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(f"{clear}  {second:>2} s  {name:<12} {text}", flush=True)
    if url and page:
        print(f"        {'':<12} {url}{page}", flush=True)
