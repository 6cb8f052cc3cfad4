"""A client inside a command of `truegauge run`: one run, and nothing twice."""

import os
import subprocess
import sys

from conftest import clean, wait_for

SCRIPT = """
import os, sys
import truegauge as tg
run = tg.init()
tg.log("loss", 0.5)
print(os.getpid(), run.run_id, flush=True)
sys.stdin.readline()
tg.close()
"""

# One of the process, one of its tree, two of the node.
SERIES = (
    "system/process/rss_bytes",
    "system/process_tree/rss_bytes",
    "system/memory/used_bytes",
    "system/disk/total_bytes",
)


def test_init_without_names_joins_the_run_and_reports_nothing_twice(server, binary):
    command = [binary, "run", "--project", "p", "--run", "joined", "--interval", "1", "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**clean(dict(os.environ)), **server.environment_of_client()},
    ) as wrapper:
        pid, run_id = wrapper.stdout.readline().split()

        def has_points() -> bool:
            found = [server.series(run_id, name) for name in SERIES]
            return server.series(run_id, "loss") and all(len(s) > 0 and s[0]["points"] >= 3 for s in found)

        wait_for(server.runs, "the run had arrived")
        wait_for(has_points, "every series had points of both")
        wrapper.stdin.close()
        assert wrapper.wait(60) == 0
    run = server.the_run()
    assert (run["run"], run["run_id"], run["state"]) == ("joined", run_id, "finished")
    assert run["attributes"]["command/exit_status"] == 0
    for name in SERIES:
        (series,) = server.series(run_id, name)
        assert series["labels"].get("pid", pid) == pid
        # A second reporter would add points at the same steps.
        steps = [step for step, _ in server.points(run_id, name)]
        assert steps == list(range(int(steps[0]), int(steps[0]) + series["points"])), steps
