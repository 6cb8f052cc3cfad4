"""Callbacks of trainers: by stand-ins with the same hooks, and by the real packages where there are some."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types

import pytest

import truegauge as tg
from truegauge import training
from truegauge.integrations import _interval

PYTHON = os.environ.get("TRUEGAUGE_TRAINERS_PYTHON", sys.executable)


class Clock:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Telemetry:
    """Keeps what is recorded."""

    is_exporting = True
    is_enabled = True

    def __init__(self) -> None:
        self.records: list[dict] = []
        self.is_over = False

    def record(self, **values) -> None:
        self.records.append({k: v for k, v in values.items() if v is not None})

    def shutdown(self) -> None:
        self.is_over = True


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def telemetry(monkeypatch):
    telemetry = Telemetry()
    monkeypatch.setattr(training, "current", lambda: telemetry)
    return telemetry


def load(monkeypatch, module: str, base: str, name: str, **extra):
    """Loads an integration over a stand-in of the package it is for."""
    parts = base.split(".")
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    setattr(sys.modules[base], name, type(name, (), {}))
    monkeypatch.delitem(sys.modules, f"truegauge.integrations.{module}", raising=False)
    return importlib.import_module(f"truegauge.integrations.{module}").TruegaugeCallback


# --- the interval ---------------------------------------------------------------------------------


def test_an_interval_is_averaged_over_its_steps(clock, telemetry):
    interval = _interval.Interval(clock)
    interval.begin(10)
    for loss in (4.0, 2.0):
        interval.add_loss(loss)
    interval.skipped = 1
    clock.now += 6
    interval.record(telemetry, 13, tokens=1200.0, grad_norm=1.5, learning_rate=0.1)
    assert telemetry.records == [
        {
            "step_duration_ms": 2000.0,
            "loss": 3.0,
            "tokens_per_sec": 200.0,
            "grad_norm": 1.5,
            "skipped_iters": 1,
            "learning_rate": 0.1,
            "step": 13,
        }
    ]
    interval.record(telemetry, 13)
    assert telemetry.records[1] == {"skipped_iters": 0, "step": 13}, "nothing when no time has passed"


def test_time_that_is_not_training_is_left_out(clock, telemetry):
    interval = _interval.Interval(clock)
    interval.begin(0)
    clock.now += 1
    interval.mark()
    clock.now += 100
    interval.leave_out()
    clock.now += 1
    interval.record(telemetry, 2)
    assert telemetry.records[0]["step_duration_ms"] == 1000.0


def test_an_interval_whose_steps_were_all_skipped_has_no_loss(clock, telemetry):
    interval = _interval.Interval(clock)
    interval.skipped = 2
    clock.now += 1
    interval.record(telemetry, 2)
    assert "loss" not in telemetry.records[0]
    assert telemetry.records[0]["skipped_iters"] == 2


def test_a_callback_that_has_nowhere_to_record_says_so(monkeypatch):
    with pytest.warns(tg.TruegaugeWarning, match=r"truegauge\.init\(\)"):
        own, is_own = _interval.telemetry_for(0, 1, None)
    assert is_own
    assert not own.is_exporting
    own.shutdown()


# --- Hugging Face's trainer -----------------------------------------------------------------------


class Arguments:
    process_index, world_size, local_process_index = 0, 1, 0


def test_huggingface_records_at_the_trainers_own_logs(monkeypatch, clock, telemetry):
    callback = load(monkeypatch, "huggingface", "transformers", "TrainerCallback")(tokens_per_step=512)
    callback._interval = _interval.Interval(clock)
    state = types.SimpleNamespace(global_step=0, num_input_tokens_seen=0)
    optimizer = types.SimpleNamespace(step_was_skipped=False)
    callback.on_train_begin(Arguments, state, None)
    for step in range(1, 5):
        clock.now += 0.5
        state.global_step = step
        optimizer.step_was_skipped = step == 2
        callback.on_step_end(Arguments, state, None, optimizer=optimizer)
        if step % 2 == 0:
            logs = {"loss": 1.0 / step, "grad_norm": 2.0, "learning_rate": 1e-4}
            callback.on_log(Arguments, state, None, logs=logs)
            clock.now += 60
            callback.on_log(Arguments, state, None, logs={"eval_loss": 9.0})
            callback.on_evaluate(Arguments, state, None)
            clock.now += 60
            callback.on_save(Arguments, state, None)
    callback.on_log(Arguments, state, None, logs={"train_runtime": 1.0})
    callback.on_train_end(Arguments, state, None)
    common = {"step_duration_ms": 500.0, "tokens_per_sec": 1024.0, "grad_norm": 2.0, "learning_rate": 1e-4}
    assert telemetry.records == [
        {**common, "loss": 0.5, "skipped_iters": 1, "step": 2},
        {**common, "loss": 0.25, "skipped_iters": 0, "step": 4},
    ]
    assert not telemetry.is_over, "somebody else's telemetry goes on"


def test_huggingface_counts_the_trainers_own_tokens(monkeypatch, clock, telemetry):
    callback = load(monkeypatch, "huggingface", "transformers", "TrainerCallback")()
    callback._interval = _interval.Interval(clock)
    state = types.SimpleNamespace(global_step=0, num_input_tokens_seen=1000)
    callback.on_train_begin(Arguments, state, None)
    clock.now += 2
    state.global_step, state.num_input_tokens_seen = 1, 5000
    callback.on_log(Arguments, state, None, logs={"loss": 1.0})
    callback.on_log(Arguments, state, None, logs={"loss": 1.0})
    assert telemetry.records[0]["tokens_per_sec"] == 2000.0
    assert "tokens_per_sec" not in telemetry.records[1]


# --- Lightning ------------------------------------------------------------------------------------


class Optimizer:
    """Counts its hooks; takes a step when told to."""

    def __init__(self) -> None:
        self.param_groups = [{"lr": 0.1, "params": []}]
        self.hooks: list = []

    def register_step_post_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def step(self):
        for hook in self.hooks:
            hook(self, (), {})


@pytest.fixture
def lightning(monkeypatch, clock, telemetry):
    base = "lightning.pytorch.callbacks"
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    callback = load(monkeypatch, "lightning", base, "Callback")(tokens_per_step=lambda batch: len(batch))
    callback._interval = _interval.Interval(clock)
    trainer = types.SimpleNamespace(
        global_rank=0,
        world_size=1,
        global_step=0,
        log_every_n_steps=3,
        accumulate_grad_batches=1,
        optimizers=[Optimizer()],
    )
    return callback, trainer


def test_lightning_records_at_the_trainers_interval(lightning, clock, telemetry):
    callback, trainer = lightning
    (optimizer,) = trainer.optimizers
    callback.on_train_start(trainer, None)
    # The second step is left out by the gradient scaler, the fourth batch has no loss.
    for batch, loss in enumerate((4.0, 100.0, 2.0, None, 3.0, 1.0), 1):
        clock.now += 0.5
        callback.on_before_optimizer_step(trainer, None, optimizer)
        if batch != 2:
            optimizer.step()
        trainer.global_step = batch
        outputs = {} if loss is None else {"loss": loss}
        callback.on_train_batch_end(trainer, None, outputs, [0] * 100, batch - 1)
        if batch == 3:
            clock.now += 60
            callback.on_validation_end(trainer, None)
    callback.on_train_end(trainer, None)
    common = {"step_duration_ms": 500.0, "tokens_per_sec": 200.0, "skipped_iters": 1, "learning_rate": 0.1}
    assert telemetry.records == [
        {**common, "loss": 3.0, "step": 3},
        {**common, "loss": 2.0, "step": 6},
    ]
    assert optimizer.hooks == []


def test_lightning_accumulates_over_batches(lightning, clock, telemetry):
    callback, trainer = lightning
    (optimizer,) = trainer.optimizers
    trainer.log_every_n_steps, trainer.accumulate_grad_batches = 1, 2
    callback.on_train_start(trainer, None)
    for batch, loss in enumerate((1.0, 2.0, 3.0, 4.0), 1):
        clock.now += 0.5
        if batch % 2 == 0:
            callback.on_before_optimizer_step(trainer, None, optimizer)
            optimizer.step()
            trainer.global_step += 1
        callback.on_train_batch_end(trainer, None, {"loss": loss}, [0], batch - 1)
    assert [(r["step"], r["loss"], r["step_duration_ms"]) for r in telemetry.records] == [
        (1, 3.0, 1000.0),
        (2, 7.0, 1000.0),
    ]


# --- the real ones --------------------------------------------------------------------------------


def needs(*modules: str) -> str:
    """The interpreter that has these; skips where there is none."""
    code = f"import {', '.join(modules)}"
    done = subprocess.run([PYTHON, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        pytest.skip(f"{PYTHON} can't import {' and '.join(modules)}: {last}")
    return PYTHON


def trained(python: str, script: str, folder, server) -> dict:
    """Runs a training that logs to a server; its last line is what the trainer itself says."""
    path = folder / "train.py"
    path.write_text(script)
    # This package and nothing else of this interpreter's.
    site = folder / "site"
    site.mkdir()
    (site / "truegauge").symlink_to(os.path.dirname(tg.__file__))
    environment = {
        **os.environ,
        **server.environment_of_client(),
        "PYTHONPATH": str(site),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [python, "-W", "ignore", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def stored(server, metric: str) -> dict[float, float]:
    """Values of a metric by step."""
    (row,) = server.runs()
    (series,) = server.get(f"runs/{row['run_id']}/points", metric=metric, axis="step", buckets=2000)["series"]
    return dict(zip(series["x"], series["last"], strict=True))


HUGGINGFACE = """
import json, torch, truegauge as tg
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments
from truegauge.integrations.huggingface import TruegaugeCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
    def forward(self, x=None, labels=None):
        found = self.line(x).squeeze(-1)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}

class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, at):
        return {"x": torch.arange(4.0) + at % 5, "labels": torch.tensor(float(at % 3))}

tg.init(project_name="llm", run_name="huggingface", capture_system_metrics=False)
# The name changed between versions.
fields = TrainingArguments.__dataclass_fields__
evaluates = "eval_strategy" if "eval_strategy" in fields else "evaluation_strategy"
arguments = TrainingArguments(
    "out", max_steps=6, logging_steps=2, per_device_train_batch_size=4, eval_steps=2, report_to=[],
    use_cpu=True, disable_tqdm=True, save_strategy="no", learning_rate=0.01, **{evaluates: "steps"},
)
callback = TruegaugeCallback(tokens_per_step=4096)
trainer = Trainer(Model(), arguments, train_dataset=Data(), eval_dataset=Data(), callbacks=[callback])
trainer.train()
tg.close()
print(json.dumps([row for row in trainer.state.log_history if "loss" in row]))
"""


def test_the_real_huggingface_trainer(online, tmp_path):
    rows = trained(needs("torch", "transformers", "accelerate"), HUGGINGFACE, tmp_path, online)
    assert [row["step"] for row in rows] == [2, 4, 6]
    for metric, key in (("loss", "loss"), ("learning_rate", "learning_rate"), ("grad_norm", "grad_norm")):
        assert stored(online, f"megatron_training_{metric}") == {row["step"]: row[key] for row in rows}, (
            metric
        )
    assert set(stored(online, "megatron_training_tokens_per_sec")) == {2, 4, 6}


LIGHTNING = """
import json, logging, torch, truegauge as tg
logging.disable(logging.WARNING)
import lightning.pytorch as pl
from truegauge.integrations.lightning import TruegaugeCallback

losses, norms = [], []

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
    def training_step(self, batch, at):
        if at == 2:
            return None
        loss = (self.line(batch) ** 2).mean()
        losses.append(float(loss))
        return loss
    def on_before_optimizer_step(self, optimizer):
        grads = [p.grad.norm() for p in self.parameters() if p.grad is not None]
        norms.append(float(torch.stack(grads).norm()) if grads else None)
    def validation_step(self, batch, at):
        pass
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

tg.init(project_name="llm", run_name="lightning", capture_system_metrics=False)
data = torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=4)
trainer = pl.Trainer(max_epochs=1, log_every_n_steps=3, accelerator="cpu", devices=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[TruegaugeCallback(tokens_per_step=4096)])
trainer.fit(Model(), data, data)
tg.close()
print(json.dumps({"losses": losses, "norms": norms}))
"""


def test_the_real_lightning_trainer(online, tmp_path):
    found = trained(needs("torch", "lightning"), LIGHTNING, tmp_path, online)
    losses = found["losses"]
    assert len(losses) == 5
    # The third batch had no loss: the first interval is of two, the second of three.
    wanted = {3: sum(losses[:2]) / 2, 6: sum(losses[2:]) / 3}
    got = stored(online, "megatron_training_loss")
    assert got == pytest.approx(wanted, rel=1e-5)
    assert stored(online, "megatron_training_skipped_iters_total")[3] == 1
    assert stored(online, "megatron_training_learning_rate") == {3: 0.01, 6: 0.01}
    assert stored(online, "megatron_training_grad_norm")[6] == pytest.approx(found["norms"][-1], rel=1e-5)
    assert set(stored(online, "megatron_training_tokens_per_sec")) == {3, 6}
