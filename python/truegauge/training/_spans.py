"""Spans of functions, and how spans of several processes know each other."""

from __future__ import annotations

from functools import wraps

from truegauge._truegauge import current_traceparent, is_span_group_enabled, managed_span, remote_span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from contextlib import AbstractContextManager
    from typing import Any, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

_KEY = "traceparent"
_flags: dict[str, list[bool]] = {}
"""Whether a group is on, one item each: a traced function looks at that instead of asking."""


def refresh() -> None:
    """Takes over which groups are on; called when the telemetry changes."""
    for group, flag in _flags.items():
        flag[0] = is_span_group_enabled(group)


def trace_fn(group: str, name: str | None = None, **attributes: object) -> Callable[[Function], Function]:
    """Puts a span around every call of a function while the group is on; asked at the call.

    Coroutine functions are traced until they return. Of a generator function the call is traced, not what
    is done while it is read.

    Args:
        group: The group that switches it.
        name: Name of the span; by default the function's.
        **attributes: Scalars of each span.

    Returns:
        The decorator.

    Example:
        >>> @trace_fn("data_loading", "app.next_batch")
        ... def next_batch(): ...
    """

    def decorate(function: Function) -> Function:
        label = name or function.__qualname__
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & 0x80:  # a coroutine function

            @wraps(function)
            async def waited(*args: Any, **keywords: Any) -> Any:
                with managed_span(group, label, **attributes):
                    return await function(*args, **keywords)

            return waited  # type: ignore[return-value]

        flag = _flags.setdefault(group, [False])
        flag[0] = is_span_group_enabled(group)

        @wraps(function)
        def traced(*args: Any, **keywords: Any) -> Any:
            if not flag[0]:
                return function(*args, **keywords)
            with managed_span(group, label, **attributes):
                return function(*args, **keywords)

        return traced  # type: ignore[return-value]

    return decorate


def inject_context(carrier: MutableMapping[str, str]) -> None:
    """Puts the current span into a mapping that goes to another process, as W3C `traceparent`.

    Args:
        carrier: Headers or the like; unchanged outside any span.
    """
    found = current_traceparent()
    if found is not None:
        carrier[_KEY] = found


def extract_context(carrier: MutableMapping[str, str]) -> AbstractContextManager[object]:
    """Makes the span that a mapping names the parent of those within `with`.

    Args:
        carrier: What `inject_context` filled in another process.

    Returns:
        The context manager.

    Example:
        >>> with extract_context(headers), managed_span("job", "app.worker"):  # doctest: +SKIP
        ...     work()
    """
    return remote_span(str(carrier.get(_KEY, "")))
