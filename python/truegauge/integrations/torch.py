"""How long a PyTorch job's ranks wait for each other, with one line in the training program.

    tg.integrations.torch.watch(model)

Functions of `torch.distributed` are replaced by ones that also look at a clock. Where a group's tensors are
on GPUs that is the GPU's own: two events on the stream around what the stream waits for, read when they are
done, and nothing is waited for. Elsewhere it is the host's. The time becomes the wait of the `tg.step` that
is open, and the number of each operation tells who holds up the others when nothing goes on.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import weakref
from time import perf_counter

from truegauge import _run
from truegauge._runnable import delayed_seconds, waited_seconds
from truegauge._truegauge import warn
from truegauge.integrations._torch_stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from truegauge._run import Run
    from truegauge._step import Step

# Where each function takes its group, among its positional arguments.
_COLLECTIVES = {
    "barrier": 0,
    "monitored_barrier": 0,
    "all_reduce": 2,
    "all_reduce_coalesced": 2,
    "broadcast": 2,
    "broadcast_object_list": 2,
    "all_gather": 2,
    "all_gather_coalesced": 2,
    "all_gather_into_tensor": 2,
    "_all_gather_base": 2,
    "all_gather_object": 2,
    "all_to_all": 2,
    "all_to_all_single": 4,
    "reduce": 3,
    "reduce_scatter": 3,
    "reduce_scatter_tensor": 3,
    "_reduce_scatter_base": 3,
    "gather": 3,
    "gather_object": 3,
    "scatter": 3,
    "scatter_object_list": 3,
}
# Between two ranks: waited for, but not counted, since the ranks of a group do not do these alike.
_BETWEEN_TWO = {"send": 2, "recv": 2}

_active: Watch | None = None


def watch(model: object = None, *, run: Run | None = None) -> Watch:
    """Measures from now on how long this process waits in collective operations.

    Call it once on every rank, after `init_process_group` and, for a `DistributedDataParallel` model, after
    that was made. What is measured:

    - functions of `torch.distributed` that wait, and `wait()` of what those with `async_op=True` return; on a
      stream of its own too, as FSDP has one, where it may overlap with other work;
    - of a `DistributedDataParallel` model, given as `model`, the end of the backward pass: from when the last
      gradients are ready until they have been exchanged. A communication hook that is registered later goes
      on inside; without one the usual average is taken.

    Functional collectives and code that `torch.compile` took over are left as they are, and not measured. A
    step whose waits you time with `phase("wait")` is left to you. Where a rank is in the job's layout is told
    too, as by `tg.set_parallel()`, where Megatron Core knows it.

    Nothing of it raises into training: where PyTorch or its `distributed` is absent, nothing happens, and
    what fails later ends the measuring with a warning.

    Args:
        model: A `DistributedDataParallel` model; anything else is looked into for one.
        run: Whose steps they are; by default the run that is current at the time.

    Returns:
        The watch. Called again it is the same one.

    Example:
        >>> model = DistributedDataParallel(model)  # doctest: +SKIP
        >>> tg.integrations.torch.watch(model)  # doctest: +SKIP
        >>> for number, batch in enumerate(loader):  # doctest: +SKIP
        ...     with tg.step(number):
        ...         train(model, batch)
    """
    global _active
    if _active is None:
        _active = Watch(run)
    try:
        _active._begin(model)
    except Exception as error:
        warn(f"waits of collective operations are not measured: {error!r:.200}")
    return _active


class Watch:
    """What `watch` has put in place."""

    def __init__(self, run: Run | None) -> None:
        self._given = run
        self._places: list[tuple[Any, str, Any]] = []
        self._local = threading.local()
        self._numbers: dict[str, int] = {}
        self._groups: weakref.WeakKeyDictionary[Any, tuple[str, bool]] = weakref.WeakKeyDictionary()
        self._works: weakref.WeakKeyDictionary[Any, tuple[Run | None, str, int, bool]]
        self._works = weakref.WeakKeyDictionary()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stream = Stream()
        self._dist: Any = None
        self._torch: Any = None
        self._is_on = False

    @property
    def is_on(self) -> bool:
        """Whether anything is measured."""
        return self._is_on

    def stop(self) -> None:
        """Puts everything back; a model's communication hook stays, and only hands on."""
        global _active
        self._is_on = False
        for owner, name, original in reversed(self._places):
            setattr(owner, name, original)
        self._places.clear()
        self._stream.drain()
        if _active is self:
            _active = None

    # --- setting up ---------------------------------------------------------------------------

    def _begin(self, model: object) -> None:
        if not self._is_on:
            dist = _distributed()
            if dist is None:
                return
            self._dist, self._torch = dist, sys.modules["torch"]
            self._replace()
            self._is_on = True
        run = self._run()
        if run is not None:
            run.set_parallel()
        for one in _data_parallel(model):
            self._hook(one)

    def _replace(self) -> None:
        dist = self._dist
        inner = importlib.import_module("torch.distributed.distributed_c10d")
        for name, at in {**_COLLECTIVES, **_BETWEEN_TWO}.items():
            original = getattr(inner, name, None)
            if original is None:
                continue
            timed = self._timed(original, at, name in _COLLECTIVES)
            for owner in (inner, dist):
                if getattr(owner, name, None) is original:
                    self._put(owner, name, timed)
        work = getattr(inner, "Work", None)
        if work is not None:
            self._put(work, "wait", self._timed_wait(work.wait))
        graph = getattr(self._torch.cuda, "CUDAGraph", None)
        if graph is not None:
            self._put(graph, "capture_begin", self._capture_begin(graph.capture_begin))
            self._put(graph, "capture_end", self._capture_end(graph.capture_end))

    def _put(self, owner: Any, name: str, what: Any) -> None:
        self._places.append((owner, name, getattr(owner, name)))
        setattr(owner, name, what)

    def _hook(self, model: Any) -> None:
        """Puts a communication hook around what a model's gradients are exchanged with."""
        if model in self._models or getattr(model, "_comm_hooks", None):
            if model not in self._models:
                warn(
                    "the model has a communication hook already: what its gradients wait is not measured "
                    "(call `watch` before `register_comm_hook`)"
                )
            return
        defaults = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
        hook = _Hook(self, model.process_group, defaults.allreduce_hook)
        try:
            model.register_comm_hook(None, hook)
        except RuntimeError as error:
            warn(f"what the model's gradients wait is not measured: {error!r:.200}")
            return
        self._models.add(model)

        def register_comm_hook(state: object, inner: Callable[..., Any]) -> None:
            # A model takes one hook in its life: another one goes inside.
            hook.state, hook.inner = state, inner

        model.register_comm_hook = register_comm_hook

    # --- measuring ----------------------------------------------------------------------------

    def _run(self) -> Run | None:
        return self._given or _run.current_run()

    def _is_off(self) -> bool:
        """Whether this call is not measured: it is inside another, or the program is being traced."""
        if not self._is_on or getattr(self._local, "is_inside", False):
            return True
        torch = self._torch
        compiler: Any = getattr(torch, "compiler", None)
        if compiler is not None and compiler.is_compiling():
            return True
        cuda = torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _capture_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._stream.pause()
            try:
                return original(graph, *args, **kwargs)
            except BaseException:
                self._stream.resume()
                raise

        return capture_begin

    def _capture_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(graph, *args, **kwargs)
            finally:
                self._stream.resume()

        return capture_end

    def _timed(self, original: Callable[..., Any], at: int, is_counted: bool) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._is_off():
                return original(*args, **kwargs)
            group = kwargs.get("group", args[at] if len(args) > at else None)
            mark = self._enter(group, is_counted)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._local.is_inside = False
                raise
            self._leave(mark, result)
            return result

        return timed

    def _timed_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_off():
                return original(work, *args, **kwargs)
            mark = self._enter_work(work)
            try:
                result = original(work, *args, **kwargs)
            except BaseException:
                self._local.is_inside = False
                raise
            self._leave(mark, None)
            return result

        return wait

    def _enter(self, group: Any, is_counted: bool) -> _Mark | None:
        try:
            mark = self._mark(*self._known(group))
            if is_counted:
                self._count(mark)
        except Exception as error:
            self._give_up(error)
            return None
        self._local.is_inside = True
        return mark

    def _enter_work(self, work: Any) -> _Mark | None:
        try:
            known = self._works.pop(work, None)
            if known is None:
                mark = self._mark(*self._known(None))
            else:
                run, name, number, is_stream = known
                mark = self._mark(name, is_stream)
                mark.run, mark.number = run, number
        except Exception as error:
            self._give_up(error)
            return None
        self._local.is_inside = True
        return mark

    def _leave(self, mark: _Mark | None, result: Any) -> None:
        self._local.is_inside = False
        if mark is None:
            return
        try:
            if result is not None and hasattr(result, "wait"):
                # It goes on by itself; what is waited of it is in its `wait`.
                self._stream.forget(mark.start)
                if mark.number is not None and not isinstance(result, self._torch.futures.Future):
                    self._works[result] = (mark.run, mark.group, mark.number, mark.is_stream)
                return
            self._end(mark)
        except Exception as error:
            self._give_up(error)

    def _mark(self, group: str, is_stream: bool) -> _Mark:
        run = self._run()
        step = None if run is None else run._open_step
        start = None
        if is_stream:
            if run is not None and run._holder is None:
                self._stream.serve(run)
            start = self._stream.mark()
        return _Mark(run, step, group, is_stream, start)

    def _count(self, mark: _Mark) -> None:
        number = self._numbers.get(mark.group, 0) + 1
        self._numbers[mark.group] = mark.number = number
        if mark.run is not None:
            mark.run.note_collective(number, mark.group, False)

    def _end(self, mark: _Mark) -> None:
        """Takes the time since `mark`, on the clock that it was begun with."""
        if mark.is_stream:
            if mark.start is not None:
                self._stream.add(mark.start, mark.step, mark.completed)
            return
        mark.completed()
        if mark.step is not None and not mark.step._waits_are_told:
            mark.step.wait(mark.waited())

    def _known(self, group: Any) -> tuple[str, bool]:
        """A group's name, which no other one has, and whether its tensors are on GPUs."""
        dist = self._dist
        pg = dist.distributed_c10d._get_default_group() if group is None else group
        if pg is getattr(dist.GroupMember, "WORLD", None):
            pg = dist.distributed_c10d._get_default_group()
        if not isinstance(pg, dist.ProcessGroup):
            # This process is in no such group; the call comes back at once.
            return "", False
        known = self._groups.get(pg)
        if known is None:
            name = getattr(pg, "group_name", None) or dist.distributed_c10d._pg_names.get(pg, "")
            is_stream = "nccl" in str(dist.get_backend(pg)) and self._torch.cuda.is_available()
            is_world = pg is dist.distributed_c10d._get_default_group()
            known = self._groups[pg] = ("world" if is_world else f"pg-{name}", is_stream)
        return known

    def _give_up(self, error: Exception) -> None:
        self._is_on = False
        warn(f"waits of collective operations are not measured any more: {error!r:.200}")


class _Mark:
    """The beginning of something that is waited for."""

    __slots__ = ("delayed", "group", "is_stream", "number", "run", "start", "started", "step", "thread")

    def __init__(self, run: Run | None, step: Step | None, group: str, is_stream: bool, start: Any) -> None:
        self.run = run
        self.step = step
        self.group = group
        self.is_stream = is_stream
        self.start = start
        self.number: int | None = None
        self.thread = threading.get_ident()
        self.delayed = 0.0 if is_stream else delayed_seconds()
        self.started = perf_counter()

    def waited(self) -> float:
        """Seconds that were spent on others since. Another thread ends what a model's hook begins."""
        elapsed = perf_counter() - self.started
        if self.thread != threading.get_ident():
            return elapsed
        return waited_seconds(elapsed, self.delayed)

    def completed(self) -> None:
        """Says that the operation is done."""
        if self.run is not None and self.number is not None:
            self.run.note_collective(self.number, self.group, True)


class _Hook:
    """A communication hook around another one, which looks at the clock.

    Buckets are exchanged while the backward pass goes on: only from the last one on is anything waited for.
    """

    def __init__(self, watch: Watch, state: Any, inner: Callable[..., Any]) -> None:
        self.watch = watch
        self.state = state
        self.inner = inner
        self.group = state
        # A model asks its hook for these, as functions have them.
        self.__name__ = self.__qualname__ = "truegauge_watch"

    def __call__(self, state: object, bucket):  # type: ignore[no-untyped-def]  # noqa: ARG002
        watch = self.watch
        if watch._is_off():
            return self.inner(self.state, bucket)
        mark = watch._enter(self.group, True)
        try:
            future = self.inner(self.state, bucket)
        finally:
            watch._local.is_inside = False
        if mark is None:
            return future
        is_last = bool(bucket.is_last())

        def then(future: Any) -> Any:
            try:
                if is_last:
                    watch._end(mark)
                elif not mark.is_stream:
                    mark.completed()
            except Exception as error:
                watch._give_up(error)
            return future.value()

        return future.then(then)


def _distributed() -> Any:
    """`torch.distributed`, where there is one that works."""
    try:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
    except ImportError:
        return None
    return dist if dist.is_available() and hasattr(torch, "futures") else None


def _data_parallel(model: object) -> list[Any]:
    """The `DistributedDataParallel` models in something."""
    if model is None:
        return []
    parallel = importlib.import_module("torch.nn.parallel").DistributedDataParallel
    if isinstance(model, parallel):
        return [model]
    modules = getattr(model, "modules", None)
    return [one for one in modules() if isinstance(one, parallel)] if callable(modules) else []
