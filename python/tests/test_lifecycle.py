"""How runs end, and what survives: exceptions, exit, signals, forks, kills, a notebook's cell."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest
from conftest import wait_for

import truegauge as tg


def state(server) -> tuple[str, str]:
    row = server.the_run()
    return row["state"], row["state_reason"]


def test_context_manager_finishes_a_run_and_an_exception_fails_it(online):
    with tg.init(project_name="p", run_name="good"):
        tg.log("v", 1.0)
    with pytest.raises(ValueError, match="boom"), tg.init(project_name="p", run_name="bad"):
        raise ValueError("boom")
    with pytest.raises(SystemExit), tg.init(project_name="p", run_name="exit-0"):
        raise SystemExit(0)
    with pytest.raises(SystemExit), tg.init(project_name="p", run_name="exit-3"):
        raise SystemExit(3)
    found = {row["run"]: (row["state"], row["state_reason"]) for row in online.runs()}
    assert {name: how for name, (how, _) in found.items()} == {
        "good": "finished",
        "bad": "failed",
        "exit-0": "finished",
        "exit-3": "failed",
    }
    assert "ValueError: boom" in found["bad"][1]


def test_shutdown_leaves_a_run_to_be_resumed(online):
    run = tg.init(project_name="p", run_name="r")
    tg.log("v", 1.0)
    assert not tg.shutdown().has_undelivered_spool
    assert state(online)[0] == "paused"
    assert tg.current_run() is None
    again = tg.init(project_name="p", run_name="r")
    assert again is not run
    tg.log("v", 2.0)
    tg.close()
    row = online.the_run()
    assert (row["state"], row["attempts"]) == ("finished", 2)
    # The second session went on where the first one left.
    assert [m["last_step"] for m in online.series(again.run_id, "v")] == [1]


def test_close_twice_is_harmless_and_the_second_says_nothing():
    run = tg.init(project_name="p", run_name="r", offline=True)
    run.log("v", 1.0)
    first, second = run.close(), run.close()
    assert first.has_undelivered_spool
    assert "truegauge sync" in first.hint
    assert (second.undelivered_batches, second.hint, second.spool_dir) == (0, None, None)
    assert tg.close() is None


def test_end_of_the_process_closes_the_run(server, scripts):
    scripts.run(
        """
        import truegauge as tg
        tg.init(project_name="p", run_name="r")
        tg.log("v", 1.0)
        """,
        **server.environment_of_client(),
    )
    row = server.the_run()
    assert (row["state"], row["points"]) == ("finished", 1)


@pytest.mark.parametrize(
    ("last", "status", "want"),
    [
        ("raise ValueError('boom')", 1, ("failed", "ValueError: boom")),
        ("raise KeyboardInterrupt", -signal.SIGINT, ("failed", "KeyboardInterrupt")),
        ("import sys; sys.exit(7)", 7, ("finished", "")),
        ("import sys; sys.exit()", 0, ("finished", "")),
    ],
    ids=["exception", "interrupt", "exit-7", "exit-0"],
)
def test_uncaught_exception_fails_the_run_and_the_status_is_untouched(server, scripts, last, status, want):
    code = f"""
        import truegauge as tg
        tg.init(project_name="p", run_name="r")
        tg.log("v", 1.0)
        {last}
        """
    process = scripts.start(code, **server.environment_of_client())
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert state(server) == want
    assert ("Traceback" in err) == ("raise" in last)


def test_earlier_excepthook_still_runs(scripts):
    _, err = scripts.run(
        """
        import sys, truegauge as tg
        sys.excepthook = lambda kind, error, trace: sys.stderr.write("mine\\n")
        tg.init(project_name="p", run_name="r", offline=True)
        raise ValueError
        """,
        code_wanted=1,
    )
    assert err.startswith("mine\n")


WAITING = """
    import sys, time, truegauge as tg
    run = tg.init(project_name="p", run_name="r")
    for i in range(1000):
        tg.log("v", float(i))
    print("ready", flush=True)
    time.sleep(100)
"""


def test_sigterm_keeps_the_points_and_its_default_status(server, scripts):
    process = scripts.start(WAITING, **server.environment_of_client())
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    row = server.the_run()
    assert (row["state"], row["state_reason"], row["points"]) == ("failed", "ended by SIGTERM", 1000)


def test_sigterm_handler_of_the_program_is_left_alone(scripts):
    out, _ = scripts.run(
        """
        import os, signal, truegauge as tg
        signal.signal(signal.SIGTERM, lambda *_: print("mine"))
        tg.init(project_name="p", run_name="r", offline=True)
        os.kill(os.getpid(), signal.SIGTERM)
        tg.log("v", 1.0)
        print(tg.flush().where)
        """
    )
    assert out == "mine\nspool\n"


def test_sigterm_inside_flush_does_not_hang(server, scripts):
    process = scripts.start(
        """
        import os, signal, sys, threading, truegauge as tg
        tg.init(project_name="p", run_name="r", close_timeout_secs=1)
        tg.log("v", 1.0)
        assert tg.flush().where == "server"
        print("ready", flush=True)
        sys.stdin.readline()
        tg.log("v", 2.0)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        tg.flush()
        """,
        **server.environment_of_client(),
    )
    assert process.stdout.readline() == "ready\n"
    server.process.send_signal(signal.SIGSTOP)
    _, err = process.communicate("go\n", timeout=60)
    assert process.returncode == -signal.SIGTERM, err
    assert "truegauge sync" in err


def test_init_outside_the_main_thread_works(server, scripts):
    scripts.run(
        """
        import threading, truegauge as tg
        def work():
            tg.init(project_name="p", run_name="r")
            tg.log("v", 1.0)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        **server.environment_of_client(),
    )
    assert server.the_run()["points"] == 1


def test_ctrl_c_ends_a_waiting_close(server, scripts):
    process = scripts.start(
        """
        import os, signal, sys, threading, time, truegauge as tg
        run = tg.init(project_name="p", run_name="r")
        tg.log("v", 1.0)
        assert tg.flush().where == "server"
        print("ready", flush=True)
        sys.stdin.readline()
        tg.log("v", 2.0)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            run.close(600)
        except KeyboardInterrupt:
            print("interrupted", run.is_open, time.monotonic() - started < 3)
        """,
        **server.environment_of_client(),
    )
    assert process.stdout.readline() == "ready\n"
    # A server that holds connections and does not answer.
    server.process.send_signal(signal.SIGSTOP)
    out, err = process.communicate("go\n", timeout=60)
    assert out == "interrupted False True\n", err
    assert process.returncode == 0


def test_unreachable_server_does_not_delay_the_end_and_says_what_to_do(scripts):
    started = time.monotonic()
    out, err = scripts.run(
        """
        import truegauge as tg
        tg.init(project_name="p", run_name="r")
        for i in range(1000):
            tg.log("v", float(i))
        """,
        TRUEGAUGE_URL="http://127.0.0.1:9",
    )
    assert time.monotonic() - started < 10
    assert out == ""
    assert "truegauge sync" in err


def test_forked_child_that_logs_is_a_session_of_its_own(server, scripts):
    scripts.run(
        """
        import os, sys, truegauge as tg
        run = tg.init(project_name="p", run_name="r")
        tg.log("v", 1.0, step=1)
        child = os.fork()
        if child == 0:
            tg.log("child", 2.0, step=2)
            assert tg.flush().is_durable
            tg.log("child", 3.0, step=3)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        tg.log("v", 4.0, step=4)
        """,
        **server.environment_of_client(),
    )
    row = server.the_run()
    assert (row["state"], row["points"]) == ("finished", 4)
    assert len(row["sessions"]) == 2
    assert all(session["ended_ms"] for session in row["sessions"])
    assert server.points(row["run_id"], "child") == [(2, 2.0), (3, 3.0)]


def test_forked_child_that_does_not_log_does_nothing(server, scripts):
    scripts.run(
        """
        import os, sys, truegauge as tg
        run = tg.init(project_name="p", run_name="r")
        tg.log("v", 1.0)
        child = os.fork()
        if child == 0:
            assert run.url and run.run_id and run.path[3] == "r"
            repr(run)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        child = os.fork()
        if child == 0:
            raise ValueError("the child's own")
        os.waitpid(child, 0)
        """,
        **server.environment_of_client(),
    )
    row = server.the_run()
    assert (row["state"], row["points"], len(row["sessions"])) == ("finished", 1, 1)


FORKS = """
    import os, threading, time, truegauge as tg
    run = tg.init(project_name="p", run_name="r", queue_capacity=1024)
    stop = threading.Event()
    def work():
        while not stop.is_set():
            tg.log("busy", 1.0)
            tg.log({"busy": [1.0] * 50, "none": None})
            time.sleep(0.0002)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(8):
        child = os.fork()
        if child == 0:
            tg.log({"child": float(n)}, step=n)
            assert tg.flush().is_durable
            run.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
"""


def test_fork_while_other_threads_log_does_not_hang_the_child(server, scripts):
    # Several times from the start: what is made at the first use is made while others fork.
    for _ in range(4):
        scripts.run(FORKS, **server.environment_of_client())
    row = server.the_run()
    (child,) = server.series(row["run_id"], "child")
    assert child["points"] == 4 * 8


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_keep_their_points(server, scripts, method):
    scripts.run(
        f"""
        import multiprocessing, truegauge as tg
        def work(n):
            if {method!r} != "fork":
                tg.init(project_name="p", run_name="r")
            tg.log("child", float(n), step=n)
        if __name__ == "__main__":
            tg.init(project_name="p", run_name="r")
            tg.log("v", 1.0)
            context = multiprocessing.get_context({method!r})
            children = [context.Process(target=work, args=(n,)) for n in range(3)]
            for child in children: child.start()
            for child in children: child.join()
            assert [child.exitcode for child in children] == [0, 0, 0]
        """,
        **server.environment_of_client(),
    )
    row = server.the_run()
    assert row["state"] == "finished"
    assert len(row["sessions"]) == 4
    assert sorted(server.points(row["run_id"], "child")) == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_failing_child_of_multiprocessing_fails_its_session(server, scripts):
    scripts.run(
        """
        import multiprocessing, truegauge as tg
        def work():
            tg.log("child", 1.0)
            raise ValueError("boom")
        tg.init(project_name="p", run_name="r")
        tg.flush()
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 1
        """,
        **server.environment_of_client(),
    )
    assert state(server) == ("failed", "ValueError: boom")


def test_pool_workers_that_do_not_log_can_be_terminated(server, scripts):
    scripts.run(
        """
        import multiprocessing, truegauge as tg
        tg.init(project_name="p", run_name="r")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
        tg.log("v", 1.0)
        """,
        **server.environment_of_client(),
    )
    row = server.the_run()
    assert (row["state"], row["points"], len(row["sessions"])) == ("finished", 1, 1)


def test_sigterm_waits_until_a_child_has_let_go_of_the_handler(scripts):
    """Python drops the signals of a child's first moments, so they are held back until they count."""
    out, _ = scripts.run(
        """
        import os, signal
        def is_held(): return signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        held = []
        os.register_at_fork(after_in_child=lambda: held.append(is_held()))
        import truegauge as tg
        tg.init(project_name="p", run_name="r", offline=True)
        child = os.fork()
        if child == 0:
            kept = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            os._exit(0 if held == [True] and not is_held() and not kept else 1)
        print(os.waitpid(child, 0)[1], is_held())
        """
    )
    assert out.split() == ["0", "False"]


def test_sigterm_before_a_child_knows_that_it_is_one_leaves_the_parents_run_alone(server, scripts):
    scripts.run(
        """
        import os, signal, time, truegauge as tg
        # Runs in the child before anything that `init` sets up there.
        os.register_at_fork(after_in_child=lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0)))
        tg.init(project_name="p", run_name="r", close_timeout_secs=30)
        tg.log("v", 1.0)
        child = os.fork()
        if child == 0:
            os._exit(9)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status
        tg.log("v", 2.0)
        """,
        **server.environment_of_client(),
    )
    row = server.the_run()
    assert (row["state"], row["points"], len(row["sessions"])) == ("finished", 2, 1)
    spools = server.folder / "clients"
    assert not spools.exists() or not list(spools.iterdir())


def test_subprocess_inherits_nothing_but_the_id(server, scripts):
    out, _ = scripts.run(
        """
        import subprocess, sys, truegauge as tg
        run = tg.init(project_name="p", run_name="r")
        print(run.run_id)
        code = "import os, truegauge as tg; print(tg.current_run(), os.environ['OTEL_RESOURCE_ATTRIBUTES'])"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        """,
        **server.environment_of_client(),
    )
    run_id, child = out.split("\n", 1)
    assert child.strip() == f"None truegauge.run_id={run_id}"


def test_killed_process_leaves_every_flushed_point(server, scripts):
    process = scripts.start(
        """
        import truegauge as tg
        tg.init(project_name="p", run_name="r")
        i = 0
        while True:
            for _ in range(500):
                tg.log("v", float(i), step=i)
                i += 1
            assert tg.flush().is_durable
            print(i, flush=True)
        """,
        **server.environment_of_client(),
    )
    flushed = 0
    stop_after = random.Random(7).uniform(0.5, 1.5)
    started = time.monotonic()
    for line in process.stdout:
        flushed = int(line)
        if time.monotonic() - started > stop_after:
            process.kill()
            break
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    row = server.the_run()
    (series,) = server.series(row["run_id"], "v")
    assert series["points"] >= flushed > 0
    assert series["points"] == series["last_step"] + 1


def test_killed_process_without_a_server_leaves_every_flushed_point(binary, scripts, tmp_path):
    from conftest import Server

    process = scripts.start(
        """
        import truegauge as tg
        tg.init(project_name="p", run_name="r")
        i = 0
        while True:
            for _ in range(500):
                tg.log("v", float(i), step=i)
                i += 1
            assert tg.flush().where == "spool"
            print(i, flush=True)
        """,
        TRUEGAUGE_URL="http://127.0.0.1:9",
    )
    flushed = 0
    while flushed < 5000:
        flushed = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    folder = tmp_path / "later"
    folder.mkdir()
    later = Server(binary, folder)
    later.start()
    try:
        import subprocess

        spools = sorted((tmp_path / "spool").iterdir())
        subprocess.run(
            [binary, "sync", spools[0], "--url", later.url], check=True, timeout=60, env=later.environment
        )
        (series,) = later.series(later.the_run()["run_id"], "v")
        assert series["points"] >= flushed
        assert series["points"] == series["last_step"] + 1
    finally:
        later.kill()


def test_server_killed_in_between_loses_and_doubles_nothing(online):
    total = 0
    with tg.init(project_name="p", run_name="r") as run:
        for _ in range(3):
            for _ in range(5000):
                tg.log("v", float(total), step=total)
                total += 1
            online.kill()
            for _ in range(5000):
                tg.log("v", float(total), step=total)
                total += 1
            online.start()
        wait_for(lambda: tg.flush().where == "server", "the server has all")
        (series,) = online.series(run.run_id, "v")
        assert (series["points"], series["last_step"]) == (total, total - 1)


def test_cell_that_runs_again_goes_on_with_its_run(online):
    cell = compile(
        "import truegauge as tg\n"
        "run = tg.init(project_name='p', run_name='r', config={'lr': lr}, tags=[tag])\n"
        "tg.log('v', lr)\n",
        "<cell>",
        "exec",
    )
    first, second = {"lr": 0.1, "tag": "a"}, {"lr": 0.2, "tag": "b"}
    exec(cell, first)
    exec(cell, second)
    assert second["run"] is first["run"]
    tg.close()
    row = online.the_run()
    assert (row["attempts"], len(row["sessions"]), row["points"]) == (1, 1, 2)
    assert row["attributes"]["config/lr"] == 0.2
    assert sorted(row["tags"]) == ["a", "b"]


def test_another_run_in_a_notebook_closes_the_one_before(online, monkeypatch):
    import sys

    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    first = tg.init(project_name="p", run_name="one")
    second = tg.init(project_name="p", run_name="two")
    assert not first.is_open
    assert tg.current_run() is second
    tg.close()


def test_page_is_told_to_a_person_and_to_nobody_else(online, monkeypatch, capsys):
    import sys

    with tg.init(project_name="p", run_name="script"):
        assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with tg.init(project_name="p", run_name="typed") as run:
        assert capsys.readouterr().err == f"truegauge: {run.url}\n"
        tg.init(project_name="p", run_name="typed")
        assert capsys.readouterr().err == "", "once a run"


def test_two_runs_of_a_script_are_both_open(online):
    first = tg.init(project_name="p", run_name="one")
    second = tg.init(project_name="p", run_name="two")
    first.log("v", 1.0)
    second.log("v", 2.0)
    tg.log("v", 3.0)
    first.close()
    assert tg.current_run() is second
    tg.close()
    found = {row["run"]: row["points"] for row in online.runs()}
    assert found == {"one": 1, "two": 2}


def test_threads_log_to_one_run(online):
    with tg.init(project_name="p", run_name="r") as run:

        def work(n):
            for i in range(2000):
                tg.log("v", float(i), labels={"thread": n})

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tg.flush().where == "server"
        assert [s["points"] for s in online.series(run.run_id, "v")] == [2000] * 4


def test_tight_loop_stays_within_its_second(online):
    with tg.init(project_name="p", run_name="r") as run:
        began = time.time() * 1000
        for i in range(100_000):
            tg.log("v", float(i))
        ended = time.time() * 1000
        assert tg.flush().where == "server"
        (series,) = online.series(run.run_id, "v")
    assert series["points"] == 100_000
    assert began - 1 <= series["first_time_ms"]
    assert series["last_time_ms"] <= ended + 1


def test_disabled_run_makes_no_thread_no_file_and_no_session(scripts, tmp_path):
    out, err = scripts.run(
        """
        import os, truegauge as tg
        before = len(os.listdir("/proc/self/task"))
        run = tg.init(project_name="p", run_name="r")
        tg.log("v", None)
        tg.log({"v": 1.0}, labels={"user_id": "x"})
        tg.set_tags(["x"]); tg.log_config({"a": 1}); tg.set_model(parameters=1)
        with tg.step(1) as s, s.phase("data"):
            pass
        print(run.is_disabled, tg.flush().where, tg.close().has_undelivered_spool)
        print(len(os.listdir("/proc/self/task")) - before)
        print(os.environ.get("OTEL_RESOURCE_ATTRIBUTES"))
        """,
        TRUEGAUGE_DISABLED="1",
    )
    assert out == "True nothing False\n0\nNone\n"
    assert err == ""
    assert not (tmp_path / "spool").exists()


def test_pid_of_a_run_is_that_of_its_process(online):
    with tg.init(project_name="p", run_name="r"):
        tg.flush()
        (session,) = online.the_run()["sessions"]
        assert session["pid"] == os.getpid()
