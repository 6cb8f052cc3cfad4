"""Torch and JAX are asked for their devices from inside `log()`, and are never imported or started."""

from __future__ import annotations

import json
import sys
import types
import uuid

import pytest
from conftest import wait_for
from gpus import driver

import truegauge as tg

LOOP = """
    import sys, time, types, threading
    import truegauge as tg

    def module(name, **content):
        made = types.ModuleType(name)
        made.__dict__.update(content)
        sys.modules[name] = made
        return made

    def jax(lock, backends, devices):
        # As JAX does it: a lock that the same thread can't take twice, around everything.
        def initialized():
            with lock:
                return len(backends) != 0

        def local_devices():
            assert initialized()
            return devices

        module(
            "jax._src.xla_bridge",
            _backend_lock=lock,
            _backends=backends,
            backends_are_initialized=initialized,
            local_devices=local_devices,
        )

    def asked(what):
        print(what, file=sys.stderr, flush=True)

    run = tg.init(project_name="p")
    print("begun", flush=True)
    sys.stdin.readline()
"""
UNTIL_TOLD = """
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    while not told.wait(0.002):
        tg.log("loss", 0.5)
    tg.close()
"""


def report(server) -> dict:
    """What the only process of the only run reports of its capture."""
    run = next(iter(server.runs()), None)
    if run is None:
        return {}
    attributes = server.get(f"runs/{run['run_id']}")["attributes"]
    found = [value for key, value in attributes.items() if key.startswith("capture/")]
    return json.loads(found[0]) if found else {}


def owned(found: dict) -> list[int]:
    return [device["gpu"] for device in found.get("devices", []) if device["role"] == "owned"]


@pytest.fixture
def training(server, scripts, tmp_path):
    """Starts a training script on four GPUs that brings a framework up after its run has begun."""
    started = []

    def start(body: str, **environment: str):
        given = {**server.environment_of_client(), **driver(tmp_path / "driver", 4), **environment}
        process = scripts.start(LOOP + body + UNTIL_TOLD, **given)
        started.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    def go_on(process) -> None:
        process.stdin.write("go on\n")
        process.stdin.flush()

    start.go_on = go_on
    yield start
    for process in started:
        process.kill()
        process.wait()


def ends_well(training, process) -> str:
    training.go_on(process)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err


def test_torch_that_comes_up_after_the_run_is_heard(server, training):
    process = training("""
    module("torch")
    module("torch.cuda", is_initialized=lambda: True, current_device=lambda: 2)
    """)
    wait_for(lambda: owned(report(server)) == [0, 1, 2, 3], "without a rank it reports every GPU")
    training.go_on(process)
    found = wait_for(lambda: (r := report(server)) and owned(r) == [2] and r, "Torch's device is its own")
    assert "Torch" in found["ownership"]
    ends_well(training, process)


def test_jax_goes_before_a_rank_and_torch_behind_it(server, training):
    body = """
    class Device:
        def __init__(self, platform, ordinal):
            self.platform, self.local_hardware_id = platform, ordinal

    devices = [Device("gpu", 3), Device("cpu", 0), Device("gpu", 1)]
    module("torch.cuda", is_initialized=lambda: True, current_device=lambda: 2)
    jax(threading.Lock(), {"cuda": object()}, devices)
    """
    process = training(body, LOCAL_RANK="0")
    wait_for(lambda: owned(report(server)) == [0], "the rank's GPU")
    training.go_on(process)
    found = wait_for(lambda: (r := report(server)) and owned(r) == [1, 3] and r, "JAX's devices")
    assert "JAX" in found["ownership"]
    ends_well(training, process)


def test_framework_that_has_not_started_its_devices_is_left_alone(server, training):
    process = training("""
    def never(*_):
        asked("started by us")

    module("torch.cuda", is_initialized=lambda: asked("torch asked") or False, current_device=never)
    module(
        "jax._src.xla_bridge",
        backends_are_initialized=lambda: asked("jax asked") or False,
        local_devices=never,
    )
    for _ in range(20_000):
        tg.log("loss", 0.5)
    """)
    training.go_on(process)
    wait_for(lambda: server.runs() and server.series(server.the_run()["run_id"], "loss"), "points")
    asked = ends_well(training, process).split("\n")
    assert "started by us" not in asked
    # A tight loop asks once a second, whatever its length.
    assert 1 <= asked.count("torch asked") <= 60
    assert asked.count("jax asked") == asked.count("torch asked")


def test_nothing_is_imported_and_no_lazy_module_is_woken(server, training):
    process = training("""
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            asked("woken: " + name)
            raise AttributeError(name)

    sys.modules["torch"] = Lazy("torch")
    sys.modules["jax"] = Lazy("jax")
    sys.path_hooks.insert(0, lambda path: asked("imports") or (_ for _ in ()).throw(ImportError))
    before = set(sys.modules)
    for _ in range(100):
        tg.log("loss", 0.5)
    assert not {n for n in set(sys.modules) - before if n.startswith(("torch", "jax"))}
    """)
    training.go_on(process)
    assert "woken" not in ends_well(training, process)


def test_whatever_a_framework_raises_is_no_answer_and_is_asked_again(server, training):
    process = training("""
    answers = [ValueError("x"), "nonsense", -1, 2**40, None, 3]

    def current_device():
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    module("torch.cuda", is_initialized=lambda: True, current_device=current_device)
    module("jax._src.xla_bridge", backends_are_initialized=lambda: 1 / 0)
    """)
    training.go_on(process)
    wait_for(lambda: owned(report(server)) == [3], "the answer that is one")
    assert "Traceback" not in ends_well(training, process)


def test_interruption_while_a_framework_answers_reaches_the_program(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    cuda = types.ModuleType("torch.cuda")
    cuda.is_initialized = interrupted
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    name = f"on-{uuid.uuid4().hex}"
    with tg.init(project_name="p", run_name=name, offline=True, capture_system_metrics=True) as run:
        with pytest.raises(KeyboardInterrupt):
            run.log("loss", 0.5)
        run.log("loss", 0.5)
        assert run.get_last_step("loss") == 0
    with tg.init(project_name="p", run_name="off", offline=True, capture_system_metrics=False) as run:
        run.log("loss", 0.5)  # nobody wants to know


def test_jax_that_another_thread_is_starting_is_not_waited_for(server, training):
    process = training("""
    lock, backends = threading.Lock(), {}
    is_held, go = threading.Event(), threading.Event()

    def start():
        with lock:
            backends["cpu"] = object()
            is_held.set()
            go.wait()
            backends["cuda"] = object()

    threading.Thread(target=start, daemon=True).start()
    is_held.wait()

    class Gpu:
        platform, local_hardware_id = "gpu", 1

    jax(lock, backends, [Gpu])
    tg.log("loss", 0.5)
    print("logged", flush=True)
    go.set()
    """)
    training.go_on(process)
    assert process.stdout.readline() == "logged\n"
    wait_for(lambda: owned(report(server)) == [1], "JAX's device, once it could be asked")
    ends_well(training, process)
