"""The package itself: stubs, reference pages, the command, what an import costs in modules."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT, clean

PYTHON = ROOT / "python"


def finished(*command: object, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, check=False, **more
    )


def test_stubs_agree_with_the_extension(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "truegauge._truegauge"]
    done = finished(*command, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(PYTHON)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_is_typed(tmp_path):
    done = finished(
        sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--config-file", "pyproject.toml", cwd=PYTHON
    )
    assert done.returncode == 0, done.stdout


def test_user_code_is_checked_against_the_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import truegauge as tg\n"
        "run = tg.init(project_name='p', config={'lr': 1.0})\n"
        "tg.log({'loss': 1.0}, step=1, labels={'split': 'train'})\n"
        "with tg.step(1) as s, s.phase('data'):\n"
        "    reveal_type(tg.flush())\n"
        "telemetry = tg.training.setup(rank=0, world_size=1)\n"
        "telemetry.record(loss=1.0, step=1)\n"
        "with tg.training.managed_span('step', 'x') as span:\n"
        "    reveal_type(span)\n"
        "tg.log('loss', 1.0, scale=3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program]
    done = finished(*command, cwd=tmp_path)
    assert "FlushInfo | None" in done.stdout
    assert "Span | None" in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
    assert 'Argument "scale"' in done.stdout


def test_reference_pages_are_what_the_code_says():
    done = finished(sys.executable, PYTHON / "reference.py", "--check")
    assert done.returncode == 0, done.stderr


def test_reference_names_every_argument_and_variable():
    from truegauge import _settings, _truegauge

    page = (ROOT / "docs/reference/settings.md").read_text()
    for name in _settings.WITHOUT_EFFECT:
        assert f"| `{name}` |" in page
    rows = _truegauge.settings()
    assert len(rows) > 15
    for name, fallback, *_ in rows:
        assert f"`{name}`" in page
        assert fallback is None or f"`{fallback}`" in page


def test_import_needs_nothing_heavy():
    code = "import sys; before = set(sys.modules); import truegauge; print(*set(sys.modules) - before)"
    done = finished(sys.executable, "-I", "-c", code)
    loaded = set(done.stdout.split())
    assert "truegauge._truegauge" in loaded
    heavy = {
        "numpy",
        "torch",
        "logging",
        "inspect",
        "dataclasses",
        "typing",
        "json",
        "ctypes",
        "urllib.request",
    }
    assert not loaded & heavy


def test_module_runs_the_command_or_says_that_there_is_none(tmp_path):
    done = finished(sys.executable, "-m", "truegauge", "--version", cwd=tmp_path)
    if done.returncode == 0:
        assert done.stdout.startswith("truegauge ")
    else:
        assert "make build" in done.stderr


@pytest.mark.parametrize(("name", "arguments"), [("train_digits", []), ("train_digits_parallel", [])])
def test_example_trains_and_logs(server, name, arguments):
    environment = {**clean(dict(os.environ)), **server.environment_of_client(), "OMP_NUM_THREADS": "1"}
    program = ROOT / "examples" / f"{name}.py"
    done = finished(sys.executable, program, "--epochs", "5", "--run-name", "x", *arguments, env=environment)
    assert done.returncode == 0, done.stderr
    row = server.the_run()
    assert row["state"] == "finished"
    assert f"{server.url}/r/{row['run_id']}" in done.stdout
    metrics = {m["display"] for m in server.get(f"runs/{row['run_id']}/metrics")["metrics"]}
    wanted = {"loss", "accuracy", "grad_norm", "throughput/samples_per_second", "train_step_seconds"}
    assert wanted <= metrics
    losses = [m for m in server.series(row["run_id"], "loss") if m["labels"].get("split") == "train"]
    assert len(losses) == (2 if name.endswith("parallel") else 1)
    assert {m["points"] for m in losses} == {25}
    labels = {frozenset(m["labels"]) for m in losses}
    assert labels == {frozenset({"split", "rank"} if name.endswith("parallel") else {"split"})}
