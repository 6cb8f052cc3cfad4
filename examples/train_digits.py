"""Trains a small neural network on the scikit-learn digits and logs it with truegauge.

A multilayer perceptron in numpy, trained for real: mini-batches, Adam, a cosine learning rate, and
images shifted and blurred with noise so that there is something left to learn for half a minute.

    python examples/train_digits.py                     # about 30 seconds
    python examples/train_digits.py --epochs 50 --run-name fifty
    TRUEGAUGE_URL=http://127.0.0.1:9494 python examples/train_digits.py

It also reports what Megatron-LM does, which fills the run's Training tab. Spans, which fill its Timeline, go
by OpenTelemetry: MEGATRON_OTEL_ENABLED=1 MEGATRON_OTEL_SPAN_GROUPS=per_step, and OTEL_EXPORTER_OTLP_ENDPOINT
where the server's gRPC port is not 4317 of this machine.

Needs: pip install numpy scikit-learn
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

import numpy as np
from sklearn.datasets import load_digits

import truegauge as tg
from truegauge import training

Array = np.ndarray
# The span of a step. By it, and by the names of what is within, the server tells where a step's time goes.
ITERATION = "megatron.train.iteration"


@dataclass
class Settings:
    """What is trained and how; logged as the run's config."""

    hidden: tuple[int, ...] = (512, 512)
    batch: int = 256
    peak_lr: float = 1e-3
    warmup: float = 0.05
    weight_decay: float = 1e-4
    noise: float = 0.15
    seed: int = 0


@dataclass
class Data:
    """Images as rows of 64 numbers from 0 to 1, and their digits."""

    train_x: Array
    train_y: Array
    val_x: Array
    val_y: Array

    @staticmethod
    def load(seed: int) -> Data:
        """Takes a fifth for validation."""
        digits = load_digits()
        images = (digits.data / 16.0).astype(np.float32)
        order = np.random.default_rng(seed).permutation(len(images))
        cut = len(images) // 5
        val, train = order[:cut], order[cut:]
        return Data(images[train], digits.target[train], images[val], digits.target[val])


def augment(images: Array, noise: float, rng: np.random.Generator) -> Array:
    """Moves each image by at most a pixel each way and adds noise."""
    squares = images.reshape(-1, 8, 8)
    padded = np.pad(squares, ((0, 0), (1, 1), (1, 1)))
    moved = np.empty_like(squares)
    corner = rng.integers(0, 3, size=(len(squares), 2))
    for row in range(3):
        for column in range(3):
            chosen = (corner[:, 0] == row) & (corner[:, 1] == column)
            moved[chosen] = padded[chosen, row : row + 8, column : column + 8]
    return moved.reshape(-1, 64) + noise * rng.standard_normal(images.shape, dtype=np.float32)


@dataclass
class Network:
    """A multilayer perceptron with ReLU.

    All weights lie in one vector, so that an optimizer and a sum over processes need know nothing of
    layers.
    """

    sizes: tuple[int, ...]
    seed: int
    weights: Array = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.weights = np.zeros(sum(a * b + b for a, b in self._pairs()), dtype=np.float32)
        for matrix, _ in self.layers(self.weights):
            matrix[:] = rng.standard_normal(matrix.shape) * np.sqrt(2.0 / matrix.shape[0])

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def layers(self, vector: Array) -> list[tuple[Array, Array]]:
        """Matrix and bias of each layer, as views into a vector."""
        found, at = [], 0
        for rows, columns in self._pairs():
            matrix = vector[at : at + rows * columns].reshape(rows, columns)
            at += rows * columns
            found.append((matrix, vector[at : at + columns]))
            at += columns
        return found

    def logits(self, inputs: Array) -> list[Array]:
        """What each layer puts out, the input first."""
        outputs = [inputs]
        layers = self.layers(self.weights)
        for at, (matrix, bias) in enumerate(layers):
            sums = outputs[-1] @ matrix + bias
            outputs.append(np.maximum(sums, 0.0) if at + 1 < len(layers) else sums)
        return outputs

    def loss(self, inputs: Array, targets: Array) -> tuple[float, float, Array]:
        """Cross entropy, accuracy and the gradient of the former, by backpropagation."""
        outputs = self.logits(inputs)
        probabilities = softmax(outputs[-1])
        rows = np.arange(len(targets))
        loss = float(-np.log(probabilities[rows, targets] + 1e-12).mean())
        accuracy = float((outputs[-1].argmax(1) == targets).mean())
        error = probabilities
        error[rows, targets] -= 1.0
        error /= len(targets)
        gradient = np.empty_like(self.weights)
        layers, slots = self.layers(self.weights), self.layers(gradient)
        for at in reversed(range(len(layers))):
            slots[at][0][:] = outputs[at].T @ error
            slots[at][1][:] = error.sum(0)
            if at:
                error = (error @ layers[at][0].T) * (outputs[at] > 0.0)
        return loss, accuracy, gradient

    def operations(self, images: int) -> int:
        """Operations of a step: two a weight and image forward, four backward."""
        return 6 * len(self.weights) * images

    def score(self, inputs: Array, targets: Array) -> tuple[float, float]:
        """Cross entropy and accuracy."""
        logits = self.logits(inputs)[-1]
        rows = np.arange(len(targets))
        loss = float(-np.log(softmax(logits)[rows, targets] + 1e-12).mean())
        return loss, float((logits.argmax(1) == targets).mean())


def report(telemetry: training.Telemetry, step: int, seconds: float, operations: int, **read: float) -> None:
    """Records a step under the names of Megatron-LM's instruments."""
    flops = operations / seconds
    telemetry.record(step_duration_ms=seconds * 1000, throughput_tflops=flops / 1e12, step=step, **read)


def softmax(logits: Array) -> Array:
    """Rows of probabilities."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@dataclass
class Adam:
    """Adam with decoupled weight decay."""

    weights: Array
    weight_decay: float
    step: int = 0

    def __post_init__(self) -> None:
        self.mean = np.zeros_like(self.weights)
        self.square = np.zeros_like(self.weights)

    def update(self, gradient: Array, lr: float) -> None:
        """Moves the weights in place."""
        self.step += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient * gradient - self.square)
        mean = self.mean / (1.0 - 0.9**self.step)
        square = self.square / (1.0 - 0.999**self.step)
        self.weights -= lr * (mean / (np.sqrt(square) + 1e-8) + self.weight_decay * self.weights)


@dataclass
class Budget:
    """How far training is: by epochs when they are given, else by the clock."""

    epochs: int | None
    seconds: float
    started: float = field(default_factory=time.monotonic)

    def done(self, epoch: float) -> float:
        """The part that is done, 0 to 1."""
        if self.epochs is not None:
            return min(1.0, epoch / self.epochs)
        return min(1.0, (time.monotonic() - self.started) / self.seconds)


def learning_rate(settings: Settings, done: float) -> float:
    """A linear warm-up, then half a cosine."""
    if done < settings.warmup:
        return settings.peak_lr * max(done / settings.warmup, 0.01)
    rest = (done - settings.warmup) / (1.0 - settings.warmup)
    return settings.peak_lr * (0.5 + 0.5 * float(np.cos(np.pi * rest)))


class Progress:
    """A bar on standard error where a person watches, else a line every few seconds."""

    def __init__(self) -> None:
        self.is_bar = sys.stderr.isatty()
        self.shown = 0.0

    def show(self, done: float, text: str) -> None:
        """Shows the state, not more often than anybody reads."""
        now = time.monotonic()
        if now - self.shown < (0.1 if self.is_bar else 5.0) and done < 1.0:
            return
        self.shown = now
        if self.is_bar:
            filled = round(done * 30)
            bar = "█" * filled + "░" * (30 - filled)
            sys.stderr.write(f"\r{bar} {done:4.0%}  {text}\x1b[K")
        else:
            sys.stderr.write(f"{done:4.0%}  {text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Leaves the bar's line."""
        if self.is_bar:
            sys.stderr.write("\n")


def table(rows: list[tuple[str, str]]) -> str:
    """Two aligned columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def train(run: tg.Run, settings: Settings, budget: Budget) -> list[tuple[str, str]]:
    """Trains and logs; returns the summary."""
    data = Data.load(settings.seed)
    rng = np.random.default_rng(settings.seed)
    network = Network((64, *settings.hidden, 10), settings.seed)
    adam = Adam(network.weights, settings.weight_decay)
    telemetry = training.setup()
    run.log_attributes("data", {"name": "scikit-learn digits", "train": len(data.train_y)})
    run.set_model(parameters=len(network.weights), layers=len(settings.hidden) + 1, dtype="fp32")

    progress, step, done = Progress(), 0, 0.0
    loss = val_loss = val_accuracy = 0.0
    steps_per_epoch = max(1, len(data.train_y) // settings.batch)
    order = rng.permutation(len(data.train_y))
    while (done := budget.done(step / steps_per_epoch)) < 1.0:
        with tg.step(step) as s, training.managed_span("step", ITERATION, **{"megatron.iteration": step}):
            began = time.perf_counter()
            with s.phase("data"), training.managed_span("data_loading", f"{ITERATION}.data_loading"):
                at = step % steps_per_epoch
                if at == 0:
                    order = rng.permutation(len(data.train_y))
                chosen = order[at * settings.batch : (at + 1) * settings.batch]
                images = augment(data.train_x[chosen], settings.noise, rng)
            with training.managed_span("forward_backward", f"{ITERATION}.forward_backward"):
                loss, accuracy, gradient = network.loss(images, data.train_y[chosen])
            lr = learning_rate(settings, done)
            with training.managed_span("optimizer", f"{ITERATION}.optimizer"):
                adam.update(gradient, lr)
            seconds, norm = time.perf_counter() - began, float(np.linalg.norm(gradient))
            work = network.operations(len(chosen))
            report(telemetry, step, seconds, work, loss=loss, grad_norm=norm, learning_rate=lr)
            tg.log({"loss": loss, "accuracy": accuracy}, labels={"split": "train"})
            tg.log(
                {
                    "grad_norm": norm,
                    "learning_rate": lr,
                    "throughput/samples_per_second": len(chosen) / seconds,
                }
            )
            if step % 10 == 0:
                with s.phase("eval"), training.managed_span("evaluate", "megatron.evaluate"):
                    val_loss, val_accuracy = network.score(data.val_x, data.val_y)
                tg.log({"loss": val_loss, "accuracy": val_accuracy}, labels={"split": "val"})
        step += 1
        progress.show(done, f"step {step}  loss {loss:.4f}  validation accuracy {val_accuracy:.1%}")
    val_loss, val_accuracy = network.score(data.val_x, data.val_y)
    tg.log({"loss": val_loss, "accuracy": val_accuracy}, step=step, labels={"split": "val"})
    progress.show(1.0, f"step {step}  loss {loss:.4f}  validation accuracy {val_accuracy:.1%}")
    progress.end()
    elapsed = time.monotonic() - budget.started
    return [
        ("steps", f"{step} ({step / steps_per_epoch:.1f} epochs)"),
        ("training loss", f"{loss:.4f}"),
        ("validation loss", f"{val_loss:.4f}"),
        ("validation accuracy", f"{val_accuracy:.2%}"),
        ("samples per second", f"{step * settings.batch / elapsed:,.0f}"),
        ("wall time", f"{elapsed:.1f} s"),
    ]


def arguments(description: str) -> argparse.ArgumentParser:
    """Arguments of this example and its parallel sister."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=30.0, help="train so long (default 30)")
    parser.add_argument("--epochs", type=int, help="train so many epochs instead")
    parser.add_argument("--run-name", help="name of the run (default: made of the time)")
    parser.add_argument("--project", default="digits", help="project of the run")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    """Trains with the arguments of the command line."""
    given = arguments("Train a small neural network on the digits.").parse_args()
    settings = Settings(seed=given.seed)
    run = tg.init(
        project_name=given.project,
        run_name=given.run_name,
        config=settings,
        tags=["example"],
        description="A small neural network learns to read digits.",
        system_metrics_interval_secs=1.0,
    )
    with run:
        summary = train(run, settings, Budget(given.epochs, given.seconds))
        where = run.flush(10.0).where
        summary.append(("points", {"server": "with the server"}.get(where, "in the spool on disk")))
        summary.append(("run", run.url or "/".join(part for part in run.path if part)))
    print(table(summary))


if __name__ == "__main__":
    main()
