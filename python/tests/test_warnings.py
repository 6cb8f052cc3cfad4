"""Nothing raises into a training loop, and each cause is said once."""

from __future__ import annotations

import pytest

import truegauge as tg

BAD = """
    import truegauge as tg
    tg.log("before", 1.0)
    tg.log("before", 1.0)
    tg.set_tags("x"); tg.flush(); tg.close()
    run = tg.init(project_name="p", run_name="r", resume_strategy="sometimes", queue_capacity="many",
                  system_metrics_interval_secs="soon")
    for _ in range(50):
        tg.log("v", None)
        tg.log("v", 1.0, step="x")
        tg.log("v", 1.0, timestamp="x")
        tg.log("", 1.0)
        tg.log("v", 1.0, labels={"user_id": 1})
        with tg.step("x"):
            pass
        with tg.step(1) as s, s.phase("nap"):
            pass
    tg.close()
    tg.log("late", 1.0)
    run.log("late", 1.0)
    run.set_tags("late")
    print("alive")
"""


def test_bad_input_never_raises_even_where_warnings_are_errors(scripts):
    out, err = scripts.run(BAD, "-W", "error")
    assert out == "alive\n"
    assert "Traceback" not in err
    # Where a warning can't be one, the logger says it.
    assert err.count("value_type") == 1


def test_a_driver_that_can_not_be_loaded_never_raises_where_warnings_are_errors(scripts, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    sampled = """
        import truegauge as tg
        run = tg.init(project_name="p", run_name="r", init_mode="offline")
        tg.log("loss", 0.5)
        tg.close()
        print("alive")
    """
    environment = {
        "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "true",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "LD_LIBRARY_PATH": str(tmp_path),
    }
    out, err = scripts.run(sampled, "-W", "error", **environment)
    assert out == "alive\n"
    assert "Traceback" not in err
    assert err.count("the run has no series of its GPUs") == 1, err


def test_each_cause_is_said_once(scripts):
    out, err = scripts.run(BAD, "-W", "always")
    assert out == "alive\n"
    causes = ["value_type", "(step)", "timestamp", "metric_name", "user_id", "no run is open", "is closed"]
    causes += ["resume_strategy", "queue_capacity", "system_metrics_interval_secs", "no server runs"]
    for cause in causes:
        said = [line for line in err.splitlines() if "TruegaugeWarning" in line and cause in line]
        assert len(said) == (2 if cause == "no run is open" else 1), (cause, err)


def test_strict_raises_what_would_be_counted(monkeypatch):
    with tg.init(project_name="p", run_name="r", offline=True, strict=True) as run:
        with pytest.raises(tg.RefusedError, match="`loss`"):
            tg.log("loss", None)
        tg.log("loss", None, strict=False)
        tg.log("loss", 1.0)
        assert run.counters()["dropped.value_type"] == 2
        assert run.counters()["logged"] == 1


def test_strict_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("TRUEGAUGE_STRICT", "1")
    with tg.init(project_name="p", run_name="r", offline=True), pytest.raises(tg.RefusedError):
        tg.log("loss", 1.0, step=0.5)


def test_run_that_cannot_start_is_said_and_does_nothing():
    with pytest.warns(tg.TruegaugeWarning, match="the run is not kept"):
        run = tg.init(project_name="p\n", run_name="r")
    assert run.is_disabled
    tg.log("v", 1.0)
    assert tg.flush().where == "nothing"
    tg.close()
    with pytest.raises(tg.TruegaugeError, match="project"):
        tg.init(project_name="p\n", run_name="r", strict=True)


def test_refused_error_is_a_truegauge_error():
    assert issubclass(tg.RefusedError, tg.TruegaugeError)
    assert issubclass(tg.TruegaugeWarning, UserWarning)


def test_warning_points_at_the_callers_line(recwarn):
    with tg.init(run_name="r", offline=True, queue_capacity="x") as run:
        tg.log("v", None)
        run.log({"v": 1.0}, step=0.5)
        with tg.step("x"):
            pass
    assert [warning.category for warning in recwarn] == [tg.TruegaugeWarning] * 4
    assert {warning.filename for warning in recwarn} == {__file__}
