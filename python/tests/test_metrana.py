"""The real `metrana` client, unmodified, against our server: through lost answers, crashes and refusals."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys

import pytest
from conftest import Server, free_port, wait_for
from proxy import Proxy

PROGRAM = """
import sys, traceback
import metrana
for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except Exception as error:
        print(f"raised {type(error).__name__}: {error}".replace("\\n", " "), flush=True)
"""

INIT = (
    'metrana.init(workspace_name="w", project_name="p", run_name="r", log_level="OFF", **{rest!r}) and None'
)


class Client:
    """A process that does with `metrana` what it is told."""

    def __init__(self, folder, address: str, **environment: str) -> None:
        with (folder / "client.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={
                    "HOME": str(folder),
                    "PATH": "/usr/bin:/bin",
                    "METRANA_INGESTION_URL": f"http://{address}",
                    "METRANA_API_KEY": "any",
                    **environment,
                },
            )

    def do(self, expression: str) -> str:
        """What an expression gives, or what it raised."""
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def init(self, **options) -> str:
        defaults = {"orchestration_id": "job-1", "capture_system_metrics": False}
        return self.do(INIT.format(rest={**defaults, **options}))

    def log(self, name: str, steps: range, **labels: str) -> None:
        """Logs a value for each step, in one go."""
        values, labels_text = [float(step) for step in steps], labels or None
        call = f"metrana.log({name!r}, {values!r}, step={list(steps)!r}, labels={labels_text!r})"
        assert self.do(call) == "None"

    def close(self) -> None:
        assert not self.do("metrana.close()").startswith("raised")

    def kill(self) -> None:
        self.process.kill()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


class Door:
    """A server, where its gRPC is, and clients of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = f"127.0.0.1:{free_port()}"
        server.environment["TRUEGAUGE_OTLP_GRPC_LISTEN"] = self.address
        self.clients: list[Client] = []

    def client(self, address: str = "", **environment: str) -> Client:
        client = Client(self.server.folder, address or self.address, **environment)
        self.clients.append(client)
        return client

    def run_id(self) -> str:
        (row,) = self.server.runs()
        return row["run_id"]

    def state(self) -> str:
        (row,) = self.server.runs()
        return row["state"]

    def steps(self, name: str, **labels: str) -> list[float]:
        """The steps of a series' points, one each, in order."""
        found = self.server.series(self.run_id(), name)
        (series,) = [one for one in found if one["labels"] == labels]
        points = self.server.points(self.run_id(), name, **labels)
        assert series["points"] == len(points), "a step came twice"
        assert all(step == value for step, value in points)
        return [step for step, _ in points]

    def stored(self, name: str, count: int) -> None:
        """Waits until so many points of all series of a metric are there."""

        def is_there() -> bool:
            rows = self.server.runs()
            series = self.server.series(rows[0]["run_id"], name) if rows else []
            return sum(one["points"] for one in series) == count

        wait_for(is_there, f"{count} points of {name} were stored")


@pytest.fixture
def door(binary, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    door = Door(Server(binary, folder))
    door.server.start()
    yield door
    for client in door.clients:
        client.kill()
    door.server.kill()


@pytest.fixture
def proxy(door):
    proxy = Proxy(door.address)
    yield proxy
    proxy.close()


def test_four_ranks_share_a_run_and_one_closes_early(door):
    ranks = [door.client(LOCAL_RANK=str(rank)) for rank in range(4)]
    for client in ranks:
        assert client.init(capture_system_metrics=True, system_metrics_interval_secs=1) == "None"
    for rank, client in enumerate(ranks):
        client.log("loss", range(500), rank=str(rank))
    door.stored("loss", 2_000)
    # Whoever reports the node is the first to have come.
    wait_for(lambda: door.server.series(door.run_id(), "system/cpu/utilization"), "the node was seen")
    ranks[3].close()
    assert door.state() == "running", "the others go on"
    for rank, client in enumerate(ranks[:3]):
        client.log("loss", range(500, 1_000), rank=str(rank))
        client.close()
    assert door.state() == "finished"
    for rank in range(4):
        assert door.steps("loss", rank=str(rank)) == list(range(500 if rank == 3 else 1_000))
    run_id = door.run_id()
    assert len(door.server.series(run_id, "system/process/rss_bytes")) == 4
    assert len(door.server.series(run_id, "system/cpu/utilization")) == 1
    run = door.server.the_run()
    assert len(run["sessions"]) == 4, "each process is one session"
    assert {session["host"] for session in run["sessions"]} == {socket.gethostname()}
    assert len({session["pid"] for session in run["sessions"]}) == 4
    assert run["attempts"] == 1


def test_messages_whose_answer_was_lost_are_stored_once(door, proxy):
    client = door.client(proxy.address)
    assert client.init() == "None"
    client.log("loss", range(100))
    door.stored("loss", 100)
    proxy.passes_answers.clear()
    client.log("loss", range(100, 200))
    door.stored("loss", 200)
    assert proxy.lost.wait(60), "an answer was kept back"
    proxy.hang_up()
    client.log("loss", range(200, 300))
    client.close()
    assert door.steps("loss") == list(range(300))
    assert door.state() == "finished"
    assert len(door.server.the_run()["sessions"]) == 1


def test_a_server_that_is_killed_between_storing_and_answering_stores_once(door, proxy):
    client = door.client(proxy.address)
    assert client.init() == "None"
    client.log("loss", range(100))
    door.stored("loss", 100)
    proxy.passes_answers.clear()
    client.log("loss", range(100, 200))
    door.stored("loss", 200)
    assert proxy.lost.wait(60), "an answer was kept back"
    door.server.kill()
    proxy.hang_up()
    client.log("loss", range(200, 300))
    door.server.start()
    client.close()
    assert door.steps("loss") == list(range(300))
    assert door.state() == "finished"
    assert len(door.server.the_run()["sessions"]) == 1


def test_the_same_job_goes_on_where_it_was_and_another_is_turned_away(door):
    first = door.client()
    assert first.init() == "None"
    first.log("loss", range(10), host="h", pid="7")
    first.close()
    again = door.client()
    assert again.init() == "None"
    for labels in ({"host": "h", "pid": "7"}, {"pid": "7", "host": "h"}):
        assert again.do(f"metrana.get_last_step('loss', labels={labels!r})") == "9"
    again.log("loss", range(10, 20), host="h", pid="7")
    again.close()
    other = door.client()
    told = other.init(orchestration_id="job-2")
    assert told.startswith("raised MetranaOrchestrationIdMismatchError"), told
    assert door.steps("loss", host="h", pid="7") == list(range(20))
    assert len(door.server.the_run()["sessions"]) == 2, "who was turned away has no part in the run"


def test_a_job_that_may_go_on_is_the_runs_next_attempt(door):
    first = door.client()
    assert first.init() == "None"
    first.log("loss", range(3))
    assert not first.do("metrana.shutdown_logger()").startswith("raised")
    wait_for(lambda: door.state() == "paused", "the run was left for later")
    later = door.client()
    assert later.init(orchestration_id="job-2", resume_strategy="allow") == "None"
    later.log("loss", range(3, 6))
    later.close()
    assert door.server.the_run()["attempts"] == 2
    assert door.state() == "finished"


def test_facts_are_those_of_a_run_of_ours(door):
    client = door.client()
    config = {"lr": 0.1, "layers": [1, 2], "none": None, "deep": {"on": True}}
    assert client.init(config=config, tags=["a", "b"], description="first", experiment_name="e") == "None"
    client.do("metrana.add_tags(['c'])")
    client.do("metrana.remove_tags(['a'])")
    client.do("metrana.log_attributes('data', {'version': 'v3'})")
    client.close()
    run = door.server.the_run()
    assert (run["workspace"], run["project"], run["run"]) == ("w", "p", "r")
    assert (sorted(run["tags"]), run["description"]) == (["b", "c"], "first")
    wanted = {
        "config/lr": 0.1,
        "config/layers/0": 1,
        "config/layers/1": 2,
        "config/none": None,
        "config/deep/on": True,
        "data/version": "v3",
        "experiment": "e",
    }
    assert {key: run["attributes"][key] for key in wanted} == wanted


def test_what_cannot_be_kept_costs_itself_only_and_is_counted(door):
    client = door.client()
    assert client.init() == "None"
    client.log("odd", range(5), run_id="x")
    client.log("loss", range(5))
    assert client.do("metrana.log_scatter('cloud', [1.0], [2.0], step=1)") == "None"
    assert client.do("metrana.log_rl_episode('reward', 1.0, rl_step=1, env_id='e')") == "None"
    client.do("metrana.log('nan', [float('nan'), float('inf')], step=[1, 2])")
    client.close()
    assert door.steps("loss") == list(range(5))
    assert [value for _, value in door.server.points(door.run_id(), "nan")] == ["NaN", "+Inf"]
    refused = door.server.the_run()["refused"]
    wanted = {"label_key": 5, "scatter": 1, "reinforcement_learning": 1}
    assert {key: refused.get(key) for key in wanted} == wanted


def test_histograms_are_classic_ones(door):
    client = door.client()
    assert client.init() == "None"
    for step in (1, 2):
        histogram = "metrana.Histogram([0.0, 1.0, 2.0], counts=[3, 4], stats=(0.0, 2.0, 5.5, 9.0))"
        assert client.do(f"metrana.log_histogram('grad', {histogram}, step={step})") == "None"
    client.close()
    run_id = door.run_id()

    def last(name: str, **labels: str) -> float:
        (series,) = [s for s in door.server.series(run_id, name) if s["labels"] == labels]
        assert (series["points"], series["last_step"]) == (2, 2)
        return series["last"]

    assert [last("grad_bucket", le=bound) for bound in ("0", "1", "2", "+Inf")] == [0, 3, 7, 7]
    assert (last("grad_sum"), last("grad_count")) == (5.5, 7)
    again = door.client()
    assert again.init() == "None"
    assert again.do("metrana.get_last_step('grad')") == "2"
    assert (
        again.do("metrana.log_histogram('grad', metrana.Histogram([0.0, 1.0], counts=[1]), step=3)") == "None"
    )
    again.close()


def test_a_token_opens_its_project_only(binary, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    door = Door(Server(binary, folder))

    def token(*options: str) -> str:
        command = [binary, "token", "create", *options, "--data-dir", folder / "data"]
        made = subprocess.run(
            command, env=door.server.environment, check=True, capture_output=True, text=True, timeout=60
        )
        return made.stdout.split()[0]

    right = token("--scope", "ingest", "--workspace", "w", "--project", "p")
    other = token("--scope", "ingest", "--workspace", "w", "--project", "q")
    reader = token("--scope", "read")
    door.server.start()
    try:
        for key, wanted in ((other, "project `q`"), (reader, "scope `ingest`"), ("wrong", "no token")):
            told = door.client(METRANA_API_KEY=key).init()
            assert told.startswith("raised"), told
            assert wanted in told
        client = door.client(METRANA_API_KEY=right)
        assert client.init() == "None"
        client.log("loss", range(3))
        client.close()
    finally:
        for client in door.clients:
            client.kill()
        door.server.kill()
