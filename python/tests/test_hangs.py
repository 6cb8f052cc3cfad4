"""What PyTorch tells of collective operations that do not end becomes events of the run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest
from conftest import clean, wait_for

import truegauge as tg

WATCHDOG = (
    "[rank1]:[E1218 20:27:21.43 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1204, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for "
    "600088 milliseconds before timing out.\n"
    "[rank1]:[E1218 20:27:21.48 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure "
    "detected by watchdog at work sequence id: 1204 PG status: last enqueued work: 1210, last completed "
    "work: 1203\n"
    "[rank0]:[E1218 20:27:22.48 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a "
    "dump signal due to a collective timeout from  rank 1. Last enqueued NCCL work: 1203, last completed "
    "NCCL work: 1203.This is most\n"
)
ENTRY = {
    "frames": [],
    "record_id": 0,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "is_p2p": False,
    "collective_seq_id": 1204,
    "profiling_name": "nccl:all_reduce",
    "state": "started",
    "retired": False,
    "input_sizes": [[512]],
    "output_sizes": [[512]],
    "timeout_ms": 600000,
}
DUMP = {
    "version": "2.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 1210, "last_completed_collective": 1203}},
    "entries": [{**ENTRY, "collective_seq_id": 1203, "state": "completed"}, ENTRY],
}


def events(server, source: str) -> list[dict]:
    """The events of the only run from one source, oldest first."""
    (row,) = server.runs()
    found = server.get("events", run_id=row["run_id"], kind="run")["events"]
    return [e for e in found if e["labels"].get("source") == source][::-1]


def bodies(found: list[dict]) -> list[tuple]:
    """Rank, group, operation, number and state of each."""
    bodies = [(e["labels"]["rank"], e["body"]) for e in found]
    bodies = [(rank, json.loads(body) if isinstance(body, str) else body) for rank, body in bodies]
    return sorted((rank, b["group"], b["op"], b["seq"], b["state"]) for rank, b in bodies)


def wrapped(server, binary, code: str, **environment: str) -> subprocess.CompletedProcess:
    command = [binary, "run", "--project", "p", "--run", "r", "--", sys.executable, "-c", code]
    given = {**clean(dict(os.environ)), **server.environment_of_client(), **environment}
    return subprocess.run(command, capture_output=True, text=True, env=given, timeout=120, check=False)


def test_lines_of_the_watchdog_become_events_of_the_run(server, binary):
    done = wrapped(server, binary, f"import sys; sys.stderr.write({WATCHDOG!r} * 3)")
    assert (done.returncode, done.stderr) == (0, WATCHDOG * 3)
    found = events(server, "nccl")
    assert bodies(found) == [
        ("0", "pg-0", "", 1203, "completed"),
        ("1", "pg-0", "ALLREDUCE", 1204, "started"),
    ]
    assert found[0]["labels"]["host"] == server.the_run()["sessions"][0]["host"]


def test_files_of_the_flight_recorder_are_found_while_the_command_runs(server, binary, tmp_path):
    prefix = tmp_path / "dumps" / "trace_"
    prefix.parent.mkdir()
    (prefix.parent / "trace_7").write_bytes(pickle.dumps(DUMP, 2))
    os.utime(prefix.parent / "trace_7", (1, 1))
    code = f"""
import json, pickle
dump = {DUMP!r}
open({str(prefix)!r} + "1", "wb").write(pickle.dumps(dump, 2))
open({str(prefix)!r} + "2.json", "w").write(json.dumps({{**dump, "entries": []}}))
open({str(prefix)!r} + "3", "wb").write(b"no dump")
"""
    done = wrapped(server, binary, code, TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(prefix))
    assert done.returncode == 0
    assert "trace_3: the file is no flight-recorder dump" in done.stderr
    assert bodies(events(server, "flight_recorder")) == [
        ("1", "pg-0", "all_reduce", 1204, "started"),
        ("2", "pg-0", "", 1204, "started"),
    ]


def test_a_program_may_hand_in_a_file_itself(online, tmp_path):
    path = tmp_path / "nccl_trace_rank_5"
    for protocol in (2, 4):
        path.write_bytes(pickle.dumps(DUMP, protocol))
        with tg.init(project_name="p", run_name="r"):
            assert tg.report_flight_recorder(path) == 1
            assert tg.report_flight_recorder(path, rank=6) == 1
            assert tg.report_flight_recorder(str(path)) == 1
    found = bodies(events(online, "flight_recorder"))
    wanted = [(rank, "pg-0", "all_reduce", 1204, "started") for rank in ("5", "6")]
    assert found == sorted(wanted * 2), "once for each session"


def test_a_file_that_is_none_is_refused_with_a_warning(run, tmp_path):
    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/harm",)

    bad = tmp_path / "bad"
    bad.write_bytes(pickle.dumps({"entries": [Attack()]}, 2))
    with pytest.warns(tg.TruegaugeWarning, match=r"`(posix|nt)\.system`, which is not called"):
        assert tg.report_flight_recorder(bad) == 0
    assert not (tmp_path / "harm").exists()
    with pytest.warns(tg.TruegaugeWarning, match="cannot read the flight-recorder dump .*/none"):
        assert tg.report_flight_recorder(tmp_path / "none") == 0
    os.mkfifo(tmp_path / "pipe")
    with pytest.warns(tg.TruegaugeWarning, match="no plain file"):
        assert tg.report_flight_recorder(tmp_path / "pipe") == 0
    with pytest.warns(tg.TruegaugeWarning, match="wanted is a path"):
        assert tg.report_flight_recorder(7.5) == 0


RANK = """
import sys, time
import truegauge as tg
run = tg.init(project_name="p", run_name="r")
long_ago = time.time() - 100
for step in range(5):
    run.log("train_step_seconds", 1.0, step=step, timestamp=long_ago + step)
assert tg.report_flight_recorder(sys.argv[1]) == 1
run.flush()
print("told", flush=True)
sys.stdin.readline()
"""


def test_the_server_names_the_rank_that_did_not_enter(server, tmp_path):
    through = {"last_enqueued_collective": 1203, "last_completed_collective": 1203}
    dumps = [DUMP, {**DUMP, "pg_status": {"0": through}, "entries": DUMP["entries"][:1]}]
    ranks = []
    for rank, dump in enumerate(dumps):
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(dump, 2))
        environment = {
            **clean(dict(os.environ)),
            **server.environment_of_client(),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "TRUEGAUGE_ORCHESTRATION_ID": "job",
        }
        command = [sys.executable, "-c", RANK, path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        ranks.append(subprocess.Popen(command, text=True, env=environment, **pipes))
    try:
        assert [process.stdout.readline() for process in ranks] == ["told\n"] * 2

        def hang():
            (row,) = server.runs()
            verdicts = server.get(f"runs/{row['run_id']}/health")["verdicts"]
            return [verdict for verdict in verdicts if verdict["class"] == "hang"]

        (verdict,) = wait_for(hang, "the hang was told")
    finally:
        for process in ranks:
            process.communicate("\n", timeout=60)
    (culprit,) = verdict["culprits"]
    assert (culprit["rank"], culprit["sequence"], culprit["completed"]) == (1, 1203, 1203), verdict
    assert "has not entered" in culprit["state"], verdict
