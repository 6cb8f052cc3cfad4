"""Set-up and the handle that it returns."""

from __future__ import annotations

from truegauge import _lifecycle, _run
from truegauge._truegauge import (
    Meter,
    ShutdownInfo,
    TelemetryCore,
    TruegaugeError,
    known_span_groups,
    known_strategies,
    register_strategy,
    set_telemetry,
    unregister_strategy,
    warn,
)
from truegauge._truegauge import register_span_group as _register_span_group
from truegauge._truegauge import unregister_span_group as _unregister_span_group
from truegauge.training import _spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from logging import Handler
    from types import TracebackType

    from truegauge._run import Run
    from truegauge._truegauge import StrategyConfig

SHUTDOWN_TIMEOUT_MS = 5000.0
"""Bound of a shutdown, and of what the end of the process waits."""

LEVEL_INFO = 20
"""`logging.INFO`, without loading `logging`."""

_current: Telemetry | None = None


class Telemetry(TelemetryCore):
    """The telemetry of a training in this process. Made by `setup()`; a context manager.

    Methods may be called from any thread.

    Attributes:
        is_exporting: Whether what is recorded comes to anything: this rank exports, or a run is open.
        exports_otlp: Whether this rank exports by OTLP or to the console.
        exports_logs: Whether it exports log records.
        is_enabled: Whether the export is switched on, for whichever ranks.
        meter: Makes instruments of the program's own, with OpenTelemetry's methods.
        run: The run that values also go to, or None.
        run_id: `nemo.run.id`; the same on all ranks where anything ties them together.
        instance_id: The run's id and the rank.
        rank: Rank in the world.
        world_size: Ranks in the world.
        span_groups: The groups whose spans are wanted.
    """

    run: Run | None = None
    _meter: Meter | None = None
    _is_over = False

    @property
    def meter(self) -> Meter:
        """Makes instruments of the program's own."""
        if self._meter is None:
            self._meter = self.get_meter()
        return self._meter

    def shutdown(self, timeout_ms: float = SHUTDOWN_TIMEOUT_MS) -> ShutdownInfo:
        """Sends what is left and ends it; one bound holds for everything. A second call does nothing.

        The run of `truegauge.init()` stays open.

        Args:
            timeout_ms: Longest time that this may take, in milliseconds.

        Returns:
            What could not be delivered.
        """
        global _current
        if _current is self:
            _current = None
            set_telemetry(None)
            _spans.refresh()
        if self in _lifecycle.open_telemetry:
            _lifecycle.open_telemetry.remove(self)
        is_over, self._is_over = self._is_over, True
        return self.end(0.0 if is_over else _bound(timeout_ms))

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        state = "shut down" if self._is_over else "exporting" if self.is_exporting else "not exporting"
        return f"<truegauge.training.Telemetry {self.instance_id} ({state})>"


def setup(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    service_name: str | None = None,
    attributes: Mapping[str, object] | None = None,
    enabled: bool | None = None,
    strategy: str | Callable[[StrategyConfig, int, int], bool] | None = None,
    export_rank: int | None = None,
    sample_rate: float | None = None,
    span_groups: str | Iterable[str] | None = None,
    exporter: str | None = None,
    run_id: str | None = None,
    user_id: str | None = None,
    run: Run | None = None,
    strict: bool = False,
) -> Telemetry:
    """Sets up the telemetry of a training; once in a process.

    An argument that is left out takes what `MEGATRON_OTEL_*` says, else `NEMO_LENS_*`, else its default;
    a blank variable is as good as unset. `OTEL_*` says where and how OTLP goes. A value that can't be used
    is warned of, and the default holds.

    A rank that does not export and has no run makes nothing, starts nothing and sends nothing. A second
    call while the first telemetry is at work warns and returns that one.

    Args:
        rank: Rank in the world; by default the launcher's, else 0.
        world_size: Ranks in the world; by default the launcher's, else 1.
        local_rank: Rank on the node; by default `LOCAL_RANK`.
        service_name: `service.name`.
        attributes: Attributes of everything that is exported: scalars by their names.
        enabled: Whether to export by OTLP.
        strategy: Which ranks export: `single_rank`, `all_ranks`, `first_rank_per_node`, `sampled`, one that
            was registered, or a function as `register_export_strategy` takes it.
        export_rank: The rank that `single_rank` means; below 0 the last.
        sample_rate: The share of ranks that `sampled` means, 0 to 1.
        span_groups: Groups of spans and presets: `default`, `per_step`, `profiling`, `all`.
        exporter: `otlp`, or `console` for JSON lines on standard output.
        run_id: The run's id, `nemo.run.id`.
        user_id: Who owns the run.
        run: The run that values also go to; by default the current one of `truegauge.init()`.
        strict: Raise on what can't be used instead of warning.

    Returns:
        The telemetry.

    Raises:
        TruegaugeError: Something can't be used, with `strict=True`.

    Example:
        >>> telemetry = training.setup(rank=7, world_size=8)  # doctest: +SKIP
    """
    global _current
    if _current is not None:
        text = "training telemetry is set up already: that one goes on (shut it down first for another)"
        if strict:
            raise TruegaugeError(text)
        warn(text)
        return _current
    if callable(strategy):
        strategy = _named(strategy)
    given: dict[str, object] = {
        "rank": _whole("rank", rank, strict),
        "world_size": _whole("world_size", world_size, strict),
        "local_rank": _whole("local_rank", local_rank, strict),
        "service_name": _text(service_name),
        "attributes": _attributes(attributes, strict),
        "enabled": None if enabled is None else bool(enabled),
        "strategy": _text(strategy),
        "export_rank": _signed("export_rank", export_rank, strict),
        "sample_rate": _number("sample_rate", sample_rate, strict),
        "span_groups": _groups(span_groups, strict),
        "exporter": _text(exporter),
        "run_id": _text(run_id),
        "user_id": _text(user_id),
        "strict": bool(strict),
    }
    run = run if run is not None else _run.current_run()
    telemetry = Telemetry(given, run)
    telemetry.run = run
    _current = telemetry
    set_telemetry(telemetry)
    _spans.refresh()
    if telemetry.is_exporting:
        _lifecycle.install()
        _lifecycle.open_telemetry.append(telemetry)
    return telemetry


def current() -> Telemetry | None:
    """Returns the telemetry that is set up, or None."""
    return _current


def shutdown(timeout_ms: float = SHUTDOWN_TIMEOUT_MS) -> ShutdownInfo | None:
    """Ends the telemetry that is set up; see `Telemetry.shutdown`. None without one."""
    return None if _current is None else _current.shutdown(timeout_ms)


def setup_logging_bridge(
    logger_name: str = "", level: int = LEVEL_INFO, *, telemetry: Telemetry | None = None
) -> Handler | None:
    """Exports what a logger writes, with the span it was written in. Nothing of our own logger goes.

    Needs `MEGATRON_OTEL_LOGS_ENABLED=1`; on a rank that exports no log records nothing is attached.

    Args:
        logger_name: The logger; the root by default.
        level: Least level that goes; by default that of `logging.INFO`.
        telemetry: Where to; by default the one that is set up.

    Returns:
        The handler, to be removed by `removeHandler`; None where none was attached.
    """
    telemetry = telemetry or _current
    if telemetry is None or not telemetry.exports_logs:
        return None
    from truegauge.training._bridge import attach

    return attach(telemetry, logger_name, level)


def register_export_strategy(
    name: str, decide: Callable[[StrategyConfig, int, int], bool], *, allow_override: bool = False
) -> None:
    """Adds a way of choosing the ranks that export, for `setup(strategy=...)` and the switch.

    Args:
        name: How the switch names it.
        decide: Asked with the switches, the rank and the number of ranks; whether the rank exports. Where it
            raises, the rank does not export, with a warning.
        allow_override: Whether it may take the place of another one.

    Raises:
        ValueError: There is one of that name.

    Example:
        >>> register_export_strategy("even", lambda config, rank, world_size: rank % 2 == 0)
    """
    register_strategy(name, decide, allow_override)


def unregister_export_strategy(name: str) -> bool:
    """Takes a strategy out again.

    Args:
        name: Its name.

    Returns:
        Whether it was there.

    Raises:
        ValueError: It is built in.
    """
    return unregister_strategy(name)


def registered_strategies() -> list[str]:
    """Returns the names of all strategies, sorted."""
    return known_strategies()


def register_span_group(name: str, *, presets: Iterable[str] = (), allow_override: bool = False) -> None:
    """Adds a span group that switches can name. It counts from the next `setup()` on.

    Args:
        name: Its name.
        presets: Presets that have it beside `all` and `profiling`: `default`, `per_step`.
        allow_override: Whether it may take the place of another one.

    Raises:
        ValueError: There is one of that name, or a preset is not known.
    """
    _register_span_group(name, list(presets), allow_override)


def unregister_span_group(name: str) -> bool:
    """Takes a span group out again.

    Args:
        name: Its name.

    Returns:
        Whether it was there.

    Raises:
        ValueError: It is built in.
    """
    return _unregister_span_group(name)


def span_groups() -> list[str]:
    """Returns the names of all span groups, sorted."""
    return known_span_groups()


def _named(decide: Callable[[StrategyConfig, int, int], bool]) -> str:
    name = f"function {getattr(decide, '__qualname__', type(decide).__name__)}"
    register_strategy(name, decide, True)
    return name


def _complain(text: str, strict: bool) -> None:
    if strict:
        raise TruegaugeError(text)
    warn(text)


def _whole(name: str, value: object, strict: bool) -> int | None:
    number = _signed(name, value, strict)
    if number is not None and not 0 <= number < 1 << 32:
        _complain(f"`{name}` is {value!r:.80}, wanted is a whole number from 0 on: it is left out", strict)
        return None
    return number


def _signed(name: str, value: object, strict: bool) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        number = 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        _complain(f"`{name}` is {value!r:.80}, wanted is a whole number: it is left out", strict)
        return None
    return int(number)


def _number(name: str, value: object, strict: bool) -> float | None:
    if value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        _complain(f"`{name}` is {value!r:.80}, wanted is a number: it is left out", strict)
        return None


def _text(value: object) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _groups(given: str | Iterable[str] | None, strict: bool) -> str | None:
    if given is None or isinstance(given, str):
        return given
    try:
        return ",".join(str(group) for group in given)
    except TypeError:
        _complain(f"`span_groups` is {given!r:.80}, wanted are names of groups: it is left out", strict)
        return None


def _attributes(given: Mapping[str, object] | None, strict: bool) -> dict[str, object]:
    kept: dict[str, object] = {}
    try:
        items = list((given or {}).items())
    except (AttributeError, TypeError):
        _complain(f"`attributes` is {given!r:.80}, wanted is a mapping: it is left out", strict)
        return kept
    for key, value in items:
        if value is None:
            continue
        if not isinstance(value, str | bool | int | float):
            _complain(
                f"the attribute {key!r:.80} is {type(value).__name__}, wanted is text, bool, int or float: "
                "it is left out",
                strict,
            )
            continue
        kept[str(key)] = value
    return kept


def _bound(timeout_ms: object) -> float:
    try:
        return float(timeout_ms)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        warn(f"`timeout_ms` is {timeout_ms!r:.80}, a number is wanted: {SHUTDOWN_TIMEOUT_MS:.0f} is used")
        return SHUTDOWN_TIMEOUT_MS
