"""The same training, data-parallel: several processes share one run and average their gradients.

Each process ("rank") takes its share of every batch, the gradients meet in shared memory, and all
ranks make the same update. Every rank calls `tg.init` with the same names, so that there is one run;
what a rank logs carries the label `rank`. Where spans are sent, as train_digits.py says, every rank has a
lane in the Timeline.

    python examples/train_digits_parallel.py --processes 2

Needs: pip install numpy scikit-learn
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import time
import uuid
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np

import truegauge as tg
from train_digits import (
    ITERATION,
    Adam,
    Budget,
    Data,
    Network,
    Progress,
    Settings,
    arguments,
    augment,
    learning_rate,
    report,
    table,
)
from truegauge import training

BARRIER_SECONDS = 120


@dataclass
class Ring:
    """Where the ranks meet, once a step: rows of shared memory, and a barrier.

    Each rank has a row for even and one for odd steps: while some still read those of a step, others may be
    at work on the next, and the barrier keeps them from getting further ahead.
    """

    rows: Any
    done: Any
    barrier: Any
    size: int

    def put(self, rank: int, step: int, gradient: np.ndarray, done: float) -> None:
        """Leaves this rank's gradient, and how far training is, which rank 0 says for all."""
        self._of(step)[rank] = gradient
        if rank == 0:
            self.done[step % 2] = done

    def meet(self) -> None:
        """Returns when every rank is here: all time in it is spent on others."""
        self.barrier.wait(BARRIER_SECONDS)

    def take(self, step: int) -> tuple[np.ndarray, float]:
        """The mean of all ranks' gradients, and how far training is, so that all end with the same step."""
        return self._of(step).mean(axis=0), float(self.done[step % 2])

    def _of(self, step: int) -> np.ndarray:
        return np.frombuffer(self.rows, dtype=np.float32).reshape(2, self.size, -1)[step % 2]


def work(rank: int, ring: Ring, settings: Settings, given: Any) -> None:
    """One rank."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ring.size))
    with tg.init(
        project_name=given.project,
        run_name=given.run_name,
        config=settings,
        tags=["example", "parallel"],
        system_metrics_interval_secs=1.0,
    ) as run:
        summary = train(run, rank, ring, settings, Budget(given.epochs, given.seconds))
    if rank == 0:
        print(table([*summary, ("run", run.url or "/".join(part for part in run.path if part))]))


def train(run: tg.Run, rank: int, ring: Ring, settings: Settings, budget: Budget) -> list[tuple[str, str]]:
    """Trains this rank's share and logs; returns the summary."""
    telemetry = training.setup(strategy="all_ranks")
    data = Data.load(settings.seed)
    shared = np.random.default_rng(settings.seed)
    own = np.random.default_rng((settings.seed, rank))
    network = Network((64, *settings.hidden, 10), settings.seed)
    adam = Adam(network.weights, settings.weight_decay)
    share = settings.batch // ring.size
    steps_per_epoch = max(1, len(data.train_y) // settings.batch)
    order = shared.permutation(len(data.train_y))
    progress, step, done, val_accuracy, loss = Progress(), 0, 0.0, 0.0, 0.0
    while done < 1.0:
        with run.step(step) as s, training.managed_span("step", ITERATION, **{"megatron.iteration": step}):
            began = time.perf_counter()
            with s.phase("data"), training.managed_span("data_loading", f"{ITERATION}.data_loading"):
                at = step % steps_per_epoch
                if at == 0:
                    order = shared.permutation(len(data.train_y))
                first = at * settings.batch + rank * share
                chosen = order[first : first + share]
                images = augment(data.train_x[chosen], settings.noise, own)
            with training.managed_span("forward_backward", f"{ITERATION}.forward_backward"):
                loss, accuracy, gradient = network.loss(images, data.train_y[chosen])
            ring.put(rank, step, gradient, budget.done((step + 1) / steps_per_epoch))
            with s.phase("wait"), training.managed_span("communication", "megatron.grad_sync.finish"):
                ring.meet()
            lr = learning_rate(settings, done)
            mean, done = ring.take(step)
            with training.managed_span("optimizer", f"{ITERATION}.optimizer"):
                adam.update(mean, lr)
            seconds, norm = time.perf_counter() - began, float(np.linalg.norm(gradient))
            work = network.operations(len(chosen))
            report(telemetry, step, seconds, work, loss=loss, grad_norm=norm, learning_rate=lr)
            run.log({"loss": loss, "accuracy": accuracy}, labels={"split": "train"})
            run.log("grad_norm", norm)
            run.log("throughput/samples_per_second", len(chosen) / seconds)
            if rank == 0 and step % 10 == 0:
                with s.phase("eval"), training.managed_span("evaluate", "megatron.evaluate"):
                    val_loss, val_accuracy = network.score(data.val_x, data.val_y)
                run.log({"loss": val_loss, "accuracy": val_accuracy}, labels={"split": "val"})
        step += 1
        if rank == 0:
            text = f"step {step}  loss {loss:.4f}  validation accuracy {val_accuracy:.1%}"
            progress.show(done, text)
    if rank == 0:
        progress.end()
    elapsed = time.monotonic() - budget.started
    return [
        ("processes", str(ring.size)),
        ("steps", str(step)),
        ("validation accuracy", f"{network.score(data.val_x, data.val_y)[1]:.2%}"),
        ("samples per second", f"{step * settings.batch / elapsed:,.0f}"),
        ("wall time", f"{elapsed:.1f} s"),
    ]


def main() -> None:
    """Starts the ranks and waits for them."""
    parser = arguments("Train the digits with several processes that share one run.")
    parser.add_argument("--processes", type=int, default=2, help="number of ranks (default 2)")
    given = parser.parse_args()
    # One thread of algebra per rank: the ranks are the parallelism.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("TRUEGAUGE_ORCHESTRATION_ID", uuid.uuid4().hex)
    given.run_name = given.run_name or time.strftime("parallel-%Y%m%d-%H%M%S")

    settings = Settings(seed=given.seed)
    weights = len(Network((64, *settings.hidden, 10), settings.seed).weights)
    context = multiprocessing.get_context("spawn")
    ring = Ring(
        rows=RawArray(ctypes.c_float, 2 * weights * given.processes),
        done=RawArray(ctypes.c_double, 2),
        barrier=context.Barrier(given.processes),
        size=given.processes,
    )
    ranks = [
        context.Process(target=work, args=(rank, ring, settings, given), name=f"rank-{rank}")
        for rank in range(given.processes)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
