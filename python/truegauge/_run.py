"""A run and the functions that speak of the current one."""

from __future__ import annotations

import contextlib
import os
import sys

from truegauge import _lifecycle, _parallel, _settings
from truegauge._collective import Collective
from truegauge._step import Step
from truegauge._truegauge import (
    CloseInfo,
    FlushInfo,
    RunCore,
    path_of,
    set_current,
    warn,
    warn_no_run,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

_current: Run | None = None
_RUN_ID = "truegauge.run_id"
_STEP_MAX = 1 << 63


class Run(RunCore):
    """One process's session with a run. Made by `init()`; a context manager.

    Leaving the `with` block closes the run: `finished`, or `failed` with the exception as the
    reason. Methods may be called from any thread.

    Attributes:
        run_id: 16 hex digits, the same on every rank.
        path: Organization, workspace, project and run.
        url: The run's page, or None when no server is known.
        rank: This process's rank in its job, or None.
    """

    _step: int | None = None
    """Number of the `step()` that is open."""
    _open_step: Step | None = None
    """That step itself."""
    _holder: Callable[[Step, dict[str, float]], bool] | None = None
    """Takes the points of a step whose waits are not known yet, to log them later; may let them be."""
    _held_step: int | None = None
    """The last step whose points were taken so."""
    _drains: Callable[[], None] | None = None
    """Logs what is held."""

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or _lifecycle.is_clean_exit(error):
            self.close()
        else:
            self._end("failed", _lifecycle.describe(error), self.close_timeout_secs)

    def log_attributes(
        self, name: str | Mapping[str, object], value: object = None, *, strict: bool | None = None
    ) -> None:
        """Sets facts about the run.

        Nested mappings, sequences, dataclasses and namespaces become path-like keys:
        `{"data": {"version": 3}}` is `data/version`. A key that is there already is overwritten.
        What is neither number, text, bool nor None is kept as its `str()`.

        Args:
            name: Key of the fact, or prefix of what `value` holds; or a mapping of facts.
            value: The fact; not read when `name` is a mapping.
            strict: Raise instead of warning when there are more than 10,000 facts at once.

        Raises:
            RefusedError: There are too many, and the call or run is strict.

        Example:
            >>> run.log_attributes("data/version", "v3")  # doctest: +SKIP
        """
        prefix, value = (_whole_text(name), value) if isinstance(name, str) else ("", name)
        self.set_attributes(prefix, value, strict)

    def log_config(self, config: object, *, strict: bool | None = None) -> None:
        """Sets facts under `config/`, as `init(config=...)` does, over those that are there.

        Args:
            config: A mapping, dataclass or namespace; nested ones become path-like keys.
            strict: Raise instead of warning when there are more than 10,000 facts at once.

        Raises:
            RefusedError: There are too many, and the call or run is strict.
        """
        self.set_attributes("config", config, strict)

    def set_tags(self, tags: str | Iterable[str]) -> None:
        """Replaces the run's tags.

        Args:
            tags: A tag or several.
        """
        self.change_tags(True, _texts(tags), [])

    def add_tags(self, tags: str | Iterable[str]) -> None:
        """Adds tags.

        Args:
            tags: A tag or several.
        """
        self.change_tags(False, _texts(tags), [])

    def remove_tags(self, tags: str | Iterable[str]) -> None:
        """Removes tags; one that is not there is no error.

        Args:
            tags: A tag or several.
        """
        self.change_tags(False, [], _texts(tags))

    def set_description(self, description: str) -> None:
        """Replaces the run's description.

        Args:
            description: Text for people.
        """
        self.describe(_whole_text(description))

    def set_model(
        self,
        *,
        parameters: float | None = None,
        active_parameters: float | None = None,
        layers: int | None = None,
        heads: int | None = None,
        head_dim: int | None = None,
        seq_len: int | None = None,
        dtype: str | None = None,
    ) -> None:
        """Says what is trained, so that throughput can be set against what the hardware could do.

        The facts become attributes under `model/`. What is not given is left as it is.

        Args:
            parameters: Weights of the model.
            active_parameters: Weights that one token meets, for a mixture of experts.
            layers: Transformer layers.
            heads: Attention heads of a layer.
            head_dim: Width of a head.
            seq_len: Tokens of a sequence.
            dtype: Type the matrix products run in, such as `bf16`.

        Example:
            >>> tg.set_model(parameters=70e9, layers=80, seq_len=4096, dtype="bf16")  # doctest: +SKIP
        """
        facts = {
            "parameters": parameters,
            "active_parameters": active_parameters,
            "layers": layers,
            "heads": heads,
            "head_dim": head_dim,
            "seq_len": seq_len,
            "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
        }
        self.set_attributes("model", {k: v for k, v in facts.items() if v is not None})

    def set_parallel(
        self,
        *,
        tp: int | None = None,
        pp: int | None = None,
        dp: int | None = None,
        ep: int | None = None,
        cp: int | None = None,
        mesh: object = None,
        rank: int | None = None,
        host: str | None = None,
        gpu: int | str | None = None,
        gpu_uuid: str | None = None,
    ) -> None:
        """Says where this rank is in the layout of the job, so that it is compared with its peers.

        The facts become the attributes `parallel/<rank>/tp` and so on. What is not given is taken from
        `mesh`, else from Megatron Core where the program uses it; what nobody knows is left out. Host and
        card are usually known without: they are for processes that can't see them themselves.

        Args:
            tp: Rank in its tensor-parallel group, from 0.
            pp: Pipeline stage, from 0.
            dp: Rank in its data-parallel group, from 0.
            ep: Rank in its expert-parallel group, from 0.
            cp: Rank in its context-parallel group, from 0.
            mesh: A PyTorch `DeviceMesh` with names of its dimensions, such as `dp` and `tp`.
            rank: The rank this is of; by default this process's own.
            host: Name of its machine.
            gpu: Index of its card on that machine, as the driver counts.
            gpu_uuid: The card's UUID, `GPU-...`.

        Example:
            >>> tg.set_parallel(tp=1, pp=0, dp=3)  # doctest: +SKIP
        """
        own = (self.rank or 0) if rank is None else _whole_or_zero("rank", rank)
        axes = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "cp": cp}
        place = _parallel.facts({**axes, "host": host, "gpu": gpu, "gpu_uuid": gpu_uuid}, mesh)
        if place and own is not None:
            self.set_attributes(f"parallel/{own}", place)

    def collective(self, number: int, group: str = "") -> Collective:
        """Says that this process enters a collective operation.

        Ranks of a group have to count alike: who is behind the others when nothing goes on any more is who
        holds them up. The last operation of a group is told once a second, also while this process hangs, as
        `train_collective_sequence` and, of those that are done, `train_collective_completed`.

        Args:
            number: Number of the operation in its group, growing.
            group: Name of the group of ranks, at most 64 bytes, no other group of the job has it; at most 64
                groups of a process are kept.

        Returns:
            The operation: its `done()` says that it is completed, and a `with` block does that by itself and
            counts as the wait of the step that is open.

        Example:
            >>> with tg.collective(1203, group="dp-0"):  # doctest: +SKIP
            ...     mine.all_reduce(gradients)
        """
        place = _whole_or_zero("number", number)
        if place is None:
            return Collective(None, 0, "")
        name = _whole_text(group)
        self.note_collective(place, name, False)
        return Collective(self, place, name)

    def report_flight_recorder(self, path: str | os.PathLike[str], rank: int | None = None) -> int:
        """Tells what a file of PyTorch's flight recorder says of a rank that hangs.

        Of each group of ranks the first operation that is not completed becomes an event of the run, and who
        did not enter what others wait in is named by the server. The file is a pickle, read without anything
        in it being called, or JSON; at most 64 MiB.

        Args:
            path: The file, as PyTorch leaves it where `TORCH_NCCL_DEBUG_INFO_TEMP_FILE` says.
            rank: The rank it is of; by default the number that its name ends with, else this process's.

        Returns:
            How many groups were told of; 0, with a warning, when the file can't be used.

        Example:
            >>> tg.report_flight_recorder("/tmp/nccl_trace_rank_3")  # doctest: +SKIP
        """
        own = None if rank is None else _whole_or_zero("rank", rank)
        place = _path("path", path)
        if place is None or (own is None and rank is not None):
            return 0
        groups, problem = self.read_flight_recorder(place, own)
        if problem is not None:
            warn(problem)
        return groups

    def step(
        self,
        step: int | None = None,
        *,
        tokens: float | None = None,
        global_tokens: float | None = None,
    ) -> Step:
        """A training step as a context manager; `log` calls inside take its number.

        Args:
            step: Number of the step; by default the one after the last.
            tokens: Tokens this process handles in the step; summed over ranks.
            global_tokens: Tokens the whole job handles in the step, instead of `tokens`.

        Returns:
            The step; its `phase()` times parts of it.

        Example:
            >>> with run.step(7, tokens=4096) as s:  # doctest: +SKIP
            ...     with s.phase("data"):
            ...         batch = next(loader)
            ...     run.log("loss", train(batch))
        """
        if step is None:
            last = self.get_last_step("train_step_seconds")
            if self._held_step is not None:
                last = self._held_step if last is None else max(last, self._held_step)
            step = 0 if last is None else last + 1
        try:
            number = int(step)
        except (TypeError, ValueError, OverflowError):
            number = _STEP_MAX
        if not -_STEP_MAX <= number < _STEP_MAX:
            warn(f"step {step!r:.80} is not a whole number of 64 bits: its time is not kept")
            return Step(None, 0, tokens, global_tokens)
        return Step(self, number, tokens, global_tokens)

    def close(self, timeout_secs: float | None = None) -> CloseInfo:
        """Ends this process's session; the run is finished when its last session is.

        Waits for the server while it acknowledges, at most `timeout_secs`. What is left then is in
        the spool on disk, and the result says which command sends it. A second call does nothing.

        Args:
            timeout_secs: Bound of the wait in seconds; by default that of `init()`, 10.

        Returns:
            What is still to be delivered.
        """
        return self._end("finished", "", timeout_secs)

    def shutdown(self, timeout_secs: float | None = None) -> CloseInfo:
        """Ends this process's session and leaves the run open to be resumed (`paused`).

        Args:
            timeout_secs: Bound of the wait in seconds; by default that of `init()`, 10.

        Returns:
            What is still to be delivered.
        """
        return self._end("left", "", timeout_secs)

    shutdown_logger = shutdown

    def _end(self, end: str, reason: str, timeout_secs: float | None) -> CloseInfo:
        global _current
        if self in _lifecycle.open_runs:
            _lifecycle.open_runs.remove(self)
        if _current is self:
            _current = None
            set_current(None)
        bound = self.close_timeout_secs
        if timeout_secs is not None:
            try:
                bound = float(timeout_secs)
            except (TypeError, ValueError, OverflowError):
                warn(f"`timeout_secs` is {timeout_secs!r:.80}, a number is wanted: {bound} s is used")
        if self._drains is not None:
            with contextlib.suppress(Exception):
                self._drains()
        info = self.end(end, _whole_text(reason), bound)
        if info.hint:
            import sys

            sys.stderr.write(f"truegauge: {info.hint}\n")
        return info

    def __repr__(self) -> str:
        state = "disabled" if self.is_disabled else "open" if self.is_open else "closed"
        return f"<truegauge.Run {'/'.join(self.path)} ({self.run_id}, {state})>"

    def _repr_html_(self) -> str:
        from html import escape

        name = escape("/".join(part for part in self.path if part))
        if not self.url:
            return f"<p>truegauge run <b>{name}</b></p>"
        link = escape(self.url, quote=True)
        return f'<p>truegauge run <a href="{link}" target="_blank" rel="noopener">{name}</a></p>'


def init(
    *,
    organization: str | None = None,
    workspace_name: str | None = None,
    project_name: str | None = None,
    run_name: str | None = None,
    experiment_name: str | None = None,
    config: object = None,
    tags: str | Iterable[str] | None = None,
    description: str | None = None,
    capture_system_metrics: bool | None = None,
    system_metrics_interval_secs: float | None = None,
    url: str | None = None,
    token: str | None = None,
    spool_dir: str | os.PathLike[str] | None = None,
    resume_strategy: str | None = None,
    init_mode: str | None = None,
    orchestration_id: str | None = None,
    queue_capacity: int | None = None,
    spool_bytes_max: int | None = None,
    init_timeout_secs: float | None = None,
    close_timeout_secs: float | None = None,
    strict: bool | None = None,
    disabled: bool | None = None,
    offline: bool | None = None,
    ingestion_url: str | None = None,
    api_key: str | None = None,
    disk: str | os.PathLike[str] | None = None,
    **compatible: object,
) -> Run:
    """Opens a run, or goes on with it, and makes it the current one.

    Never waits longer than about a second for a server: without one the run goes to a spool on disk.
    An argument that is left out takes what the environment says (`TRUEGAUGE_*`, else `METRANA_*`),
    else its default; `docs/reference/settings.md` lists them all.

    Called again for the same run while it is open, as a notebook's cell does, it returns the same
    object, and `config`, `tags` and `description` are applied to it. In a notebook, another run closes the
    one before.

    Args:
        organization: Who owns the run.
        workspace_name: The team's space.
        project_name: What the run belongs to.
        run_name: The run's name; by default the job's id, else the time.
        experiment_name: Kept as the attribute `experiment`.
        config: Mapping, dataclass or namespace, kept as attributes under `config/`.
        tags: Tags of the run.
        description: Text for people.
        capture_system_metrics: Whether the machine is sampled.
        system_metrics_interval_secs: Seconds between two samples, at least 1.
        url: The server.
        token: Bearer token for it.
        spool_dir: Folder that keeps what could not be sent yet.
        resume_strategy: `allow` goes on with a run that is there; `never` refuses unless it is the
            same job's.
        init_mode: `offline` is the same as `offline=True`.
        orchestration_id: Token of the job: processes that share it are one attempt.
        queue_capacity: Points that memory holds before `log` writes to the spool.
        spool_bytes_max: Most bytes that the spool takes.
        init_timeout_secs: Longest wait for the server here, at most 1.
        close_timeout_secs: Longest wait for the server in `close`.
        strict: Raise on bad input instead of counting it.
        disabled: Make every call a no-op.
        offline: Send nothing, keep all in the spool.
        ingestion_url: Another name of `url`.
        api_key: Another name of `token`.
        disk: Another name of `spool_dir`.
        **compatible: Arguments that other loggers know and that have no effect here; each is
            accepted with one debug line.

    Returns:
        The run. One that could not be started does nothing, and a warning says why. At a terminal
        or in a notebook one line on standard error says where the run's page is.

    Raises:
        TypeError: An argument's name is not known.
        TruegaugeError: The run could not be started, with `strict=True`.

    Example:
        >>> run = tg.init(project_name="llm", config={"lr": 3e-4})  # doctest: +SKIP
    """
    arguments = dict(locals())
    del arguments["compatible"]
    _settings.accept(compatible, set(arguments))
    settings: dict[str, object] = {
        "organization": _text(organization),
        "workspace": _text(workspace_name),
        "project": _text(project_name),
        "run": _text(run_name),
        "experiment": _text(experiment_name),
        "config": config,
        "tags": None if tags is None else _texts(tags),
        "description": _text(description),
        "capture_system_metrics": _flag(capture_system_metrics),
        "system_metrics_interval_secs": system_metrics_interval_secs,
        "url": _text(url if url is not None else ingestion_url),
        "token": _text(token if token is not None else api_key),
        "spool_dir": _path("spool_dir", spool_dir if spool_dir is not None else disk),
        "resume_never": _choice("resume_strategy", resume_strategy, {"allow": False, "never": True}),
        "job_token": _text(orchestration_id),
        "queue_capacity": _whole("queue_capacity", queue_capacity),
        "spool_bytes_max": _whole("spool_bytes_max", spool_bytes_max),
        "init_timeout_secs": init_timeout_secs,
        "close_timeout_secs": close_timeout_secs,
        "strict": _flag(strict),
        "disabled": _flag(disabled),
        "offline": _flag(offline)
        if offline is not None
        else _choice("init_mode", init_mode, {"offline": True, "online_only": False, "online": False}),
    }
    return _open(settings)


def _open(settings: dict[str, object]) -> Run:
    global _current
    same = _same_run(settings)
    if same is not None:
        run = same
        if settings["config"] is not None:
            run.log_config(settings["config"])
        if settings["tags"] is not None:
            run.add_tags(_texts(settings["tags"]))
        if settings["description"] is not None:
            run.set_description(_whole_text(settings["description"]))
    else:
        if _current is not None and _lifecycle.is_interactive():
            _current.close()
        run = Run(settings)
        _show_page(run)
    if not run.is_disabled:
        _lifecycle.install()
        if run not in _lifecycle.open_runs:
            _lifecycle.open_runs.append(run)
        _tell_open_telemetry(run.run_id)
        _tell_training(run)
    _current = run
    set_current(run)
    return run


def _show_page(run: Run) -> None:
    """Tells a person at a terminal where the run's page is; logs and pipes stay clean."""
    with contextlib.suppress(Exception):
        if run.url and (sys.stderr.isatty() or _lifecycle.is_interactive()):
            sys.stderr.write(f"truegauge: {run.url}\n")


def _same_run(settings: dict[str, object]) -> Run | None:
    path = path_of(settings)
    if not path[3]:
        return None  # its name will be made of the time
    for run in _lifecycle.open_runs:
        if run.path == path and run.is_own and not settings["disabled"]:
            return run
    return None


def _tell_training(run: Run) -> None:
    """Says that training telemetry which is at work does not record to this run."""
    module = sys.modules.get("truegauge.training")
    telemetry = None if module is None else module.current()
    if telemetry is not None and telemetry.run is not run:
        warn(
            "training telemetry was set up before this run was opened: what it records does not go there "
            "(call `truegauge.init()` first)"
        )


def _tell_open_telemetry(run_id: str) -> None:
    """Puts the run's id where an OpenTelemetry SDK that starts later finds it.

    So a job that uses both is one run.
    """
    earlier = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    kept = [p for p in earlier.split(",") if p.strip() and not p.strip().startswith(f"{_RUN_ID}=")]
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = ",".join([*kept, f"{_RUN_ID}={run_id}"])


def _text(value: object) -> str | None:
    return None if value is None else _whole_text(value)


def _whole_text(value: object) -> str:
    """A value's text; what is no Unicode, as odd bytes of a command line become, is `?`."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _texts(values: object) -> list[str]:
    if isinstance(values, str):
        return [_whole_text(values)]
    try:
        # One that never ends is cut; a run keeps 200 tags.
        return [_whole_text(value) for _, value in zip(range(1000), values, strict=False)]  # type: ignore[call-overload]
    except TypeError:
        return [_whole_text(values)]


def _flag(value: object) -> bool | None:
    if isinstance(value, str):
        return _choice("a switch", value, {
            "1": True, "true": True, "yes": True, "on": True,
            "0": False, "false": False, "no": False, "off": False,
        })  # fmt: skip
    return None if value is None else bool(value)


def _choice(name: str, value: object, choices: dict[str, bool]) -> bool | None:
    if value is None:
        return None
    word = str(getattr(value, "value", value)).strip().lower()
    if word not in choices:
        warn(f"`{name}` is {value!r:.80}, wanted is one of {', '.join(choices)}: it is left out")
    return choices.get(word)


def _whole(name: str, value: object) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 < number < 1 << 63:
        warn(f"`{name}` is {value!r:.80}, wanted is a whole number above 0: it is left out")
        return None
    return int(number)


def _whole_or_zero(name: str, value: object) -> int | None:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number < 1 << 53:
        warn(f"`{name}` is {value!r:.80}, wanted is a whole number from 0 on: it is left out")
        return None
    return int(number)


def _path(name: str, value: object) -> str | None:
    if value is None:
        return None
    try:
        path = os.fsdecode(value)  # type: ignore[arg-type]
        if b"\0" in os.fsencode(path):
            raise ValueError
        return path
    except (TypeError, ValueError):
        warn(f"`{name}` is {value!r:.80}, wanted is a path: it is left out")
        return None


def current_run() -> Run | None:
    """Returns the run that the module's functions speak of, or None."""
    return _current


def _require() -> Run | None:
    if _current is None:
        warn_no_run()
    return _current


def log_attributes(
    name: str | Mapping[str, object], value: object = None, *, strict: bool | None = None
) -> None:
    """Sets facts about the current run; see `Run.log_attributes`."""
    if run := _require():
        run.log_attributes(name, value, strict=strict)


def log_config(config: object, *, strict: bool | None = None) -> None:
    """Sets facts under `config/` of the current run; see `Run.log_config`."""
    if run := _require():
        run.log_config(config, strict=strict)


def set_tags(tags: str | Iterable[str]) -> None:
    """Replaces the current run's tags; see `Run.set_tags`."""
    if run := _require():
        run.set_tags(tags)


def add_tags(tags: str | Iterable[str]) -> None:
    """Adds tags to the current run; see `Run.add_tags`."""
    if run := _require():
        run.add_tags(tags)


def remove_tags(tags: str | Iterable[str]) -> None:
    """Removes tags from the current run; see `Run.remove_tags`."""
    if run := _require():
        run.remove_tags(tags)


def set_description(description: str) -> None:
    """Replaces the current run's description; see `Run.set_description`."""
    if run := _require():
        run.set_description(description)


def set_model(
    *,
    parameters: float | None = None,
    active_parameters: float | None = None,
    layers: int | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    seq_len: int | None = None,
    dtype: str | None = None,
) -> None:
    """Says what the current run trains; see `Run.set_model`."""
    if run := _require():
        run.set_model(
            parameters=parameters,
            active_parameters=active_parameters,
            layers=layers,
            heads=heads,
            head_dim=head_dim,
            seq_len=seq_len,
            dtype=dtype,
        )


def set_parallel(
    *,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: int | None = None,
    cp: int | None = None,
    mesh: object = None,
    rank: int | None = None,
    host: str | None = None,
    gpu: int | str | None = None,
    gpu_uuid: str | None = None,
) -> None:
    """Says where this rank is in the layout of the job; see `Run.set_parallel`."""
    if run := _require():
        run.set_parallel(
            tp=tp, pp=pp, dp=dp, ep=ep, cp=cp, mesh=mesh, rank=rank, host=host, gpu=gpu, gpu_uuid=gpu_uuid
        )


def collective(number: int, group: str = "") -> Collective:
    """Says that this process enters a collective operation; see `Run.collective`."""
    run = _require()
    return Collective(None, 0, "") if run is None else run.collective(number, group)


def report_flight_recorder(path: str | os.PathLike[str], rank: int | None = None) -> int:
    """Tells what a file of PyTorch's flight recorder says; see `Run.report_flight_recorder`."""
    run = _require()
    return 0 if run is None else run.report_flight_recorder(path, rank)


def get_last_step(
    name: str, *, labels: Mapping[str, object] | None = None, scale: str | None = None
) -> int | None:
    """The last step this process logged on a series of the current run; see `Run.get_last_step`."""
    run = _require()
    return None if run is None else run.get_last_step(name, labels=labels, scale=scale)


def step(step: int | None = None, *, tokens: float | None = None, global_tokens: float | None = None) -> Step:
    """A training step of the current run as a context manager; see `Run.step`."""
    run = _require()
    if run is None:
        return Step(None, 0, tokens, global_tokens)
    return run.step(step, tokens=tokens, global_tokens=global_tokens)


def flush(timeout_secs: float | None = None) -> FlushInfo | None:
    """Waits until what was logged is durable; see `Run.flush`. None without a run."""
    run = _require()
    return None if run is None else run.flush(timeout_secs)


def close(timeout_secs: float | None = None) -> CloseInfo | None:
    """Ends this process's session with the current run; see `Run.close`. None without a run."""
    return None if _current is None else _current.close(timeout_secs)


def shutdown(timeout_secs: float | None = None) -> CloseInfo | None:
    """Leaves the current run open to be resumed; see `Run.shutdown`. None without a run."""
    return None if _current is None else _current.shutdown(timeout_secs)
