"""Asks the server what it knows."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime, timedelta
    from typing import Any

DEFAULT_URL = "http://127.0.0.1:9494"
TIMEOUT_SECONDS = 30
_STEPS_WANTED = 300
_BLOCK_BYTES = 1 << 18


class Series:
    """One series of an answer.

    Attributes:
        labels: Label names and values, the metric's name under `__name__` where it has one.
        times: Seconds since the epoch, in order.
        values: One value per time; NaN and infinities are themselves.
    """

    __slots__ = ("labels", "times", "values")

    def __init__(self, labels: dict[str, str], points: list[list[Any]]) -> None:
        self.labels = labels
        self.times = [float(time) for time, _ in points]
        self.values = [float(value) for _, value in points]

    def __repr__(self) -> str:
        return f"<Series {self.labels} with {len(self.values)} points>"


class Answer:
    """What a query evaluates to; iterating gives its series.

    Attributes:
        kind: `vector`, `matrix` or `scalar`; a scalar is one series without labels.
        series: The series, in the server's order.
        warnings: Likely mistakes in the query or the data, in words.
        infos: Possible mistakes, in words.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        data = content["data"]
        self.kind: str = data["resultType"]
        rows = [{"metric": {}, "value": data["result"]}] if self.kind == "scalar" else data["result"]
        self.series = [Series(row["metric"], row.get("values") or [row["value"]]) for row in rows]
        self.warnings: list[str] = content.get("warnings", [])
        self.infos: list[str] = content.get("infos", [])

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series)

    def __repr__(self) -> str:
        return f"<Answer {self.kind} of {len(self)} series>"

    def columns(self) -> dict[str, list[Any]]:
        """The points as columns of equal length: a row per point.

        Returns:
            `time` (seconds since the epoch), one column per label (None where a series lacks it)
            and `value`.
        """
        names = sorted({name for one in self.series for name in one.labels} - {"time", "value"})
        lengths = [len(one.times) for one in self.series]
        table: dict[str, list[Any]] = {"time": [time for one in self.series for time in one.times]}
        for name in names:
            labels = (one.labels.get(name) for one in self.series)
            table[name] = [label for label, n in zip(labels, lengths, strict=True) for _ in range(n)]
        table["value"] = [value for one in self.series for value in one.values]
        return table

    def to_pandas(self) -> Any:
        """The points as a `pandas.DataFrame`, times as UTC timestamps; pandas must be installed."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        frame = pandas.DataFrame(self.columns())
        millis = (frame["time"] * 1000).round().astype("int64")
        frame["time"] = pandas.to_datetime(millis, unit="ms", utc=True)
        return frame

    def to_arrow(self) -> Any:
        """The points as a `pyarrow.Table`, times in seconds; pyarrow must be installed."""
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pyarrow.table(self.columns())


def query(
    promql: str,
    *,
    time: float | datetime | timedelta | None = None,
    start: float | datetime | timedelta | None = None,
    end: float | datetime | timedelta | None = None,
    step: float | timedelta | None = None,
    url: str | None = None,
    token: str | None = None,
) -> Answer:
    """Evaluates PromQL: at one time, or over a range when `start` is given.

    Args:
        promql: The query.
        time: When, for a single evaluation: seconds since the epoch, a datetime (a naive one is local
            time) or a timedelta before now. Now by default.
        start: First time of a range, given like `time`.
        end: Last time of the range; now by default.
        step: Seconds between evaluations; by default so many that there are about 300.
        url: The server; by default `TRUEGAUGE_URL`, else `http://127.0.0.1:9494`.
        token: Bearer token; by default `TRUEGAUGE_TOKEN`.

    Returns:
        The answer; `to_pandas()` and `to_arrow()` make a table of it.

    Raises:
        TruegaugeError: The query is not valid or costs too much, or the server can't be reached.

    Example:
        >>> for series in tg.query('avg by (run) (loss)'):  # doctest: +SKIP
        ...     print(series.labels["run"], series.values[-1])
    """
    asked = {"query": promql}
    if start is None:
        if time is not None:
            asked["time"] = _seconds(time)
        return Answer(ask(url, token, "/api/v1/query", asked))
    first, last = _seconds(start), _now() if end is None else _seconds(end)
    if step is None:
        width = max(1.0, round((float(last) - float(first)) / _STEPS_WANTED))
    else:
        width = step if isinstance(step, int | float) else step.total_seconds()
    asked |= {"start": first, "end": last, "step": repr(float(width))}
    return Answer(ask(url, token, "/api/v1/query_range", asked))


def _now() -> str:
    import time

    return f"{time.time():.3f}"


def _seconds(moment: float | datetime | timedelta) -> str:
    """A moment as seconds since the epoch, in words for the server."""
    if isinstance(moment, int | float):
        return repr(moment)
    if hasattr(moment, "timestamp"):
        return f"{moment.timestamp():.3f}"
    return f"{float(_now()) - moment.total_seconds():.3f}"


def ask(url: str | None, token: str | None, path: str, query: dict[str, str]) -> dict[str, Any]:
    """What the server answers, as JSON."""
    import json

    from truegauge._truegauge import TruegaugeError

    with _opened(url, token, path, query) as answer:
        try:
            content: dict[str, Any] = json.load(answer)
        except ValueError as error:
            reason = f"the answer of `{_base(url)}` is not JSON: {error}; is that a truegauge server?"
            raise TruegaugeError(reason) from error
        return content


def lines(url: str | None, token: str | None, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """What the server answers, as one JSON value a line; an answer that breaks off is an error."""
    import json

    from truegauge._truegauge import TruegaugeError

    with _opened(url, token, path, query) as answer:
        # By blocks: read by lines, an answer without its last chunk looks whole.
        rest = b""
        while block := answer.read(_BLOCK_BYTES):
            *whole, rest = (rest + block).split(b"\n")
            yield from map(json.loads, whole)
        if rest or answer.length:
            raise TruegaugeError(f"the answer of `{_base(url)}` broke off; its log says why, try again")


def _base(url: str | None) -> str:
    return (url or os.environ.get("TRUEGAUGE_URL") or DEFAULT_URL).rstrip("/")


@contextlib.contextmanager
def _opened(url: str | None, token: str | None, path: str, query: dict[str, str]) -> Iterator[Any]:
    """The answer, to be read; what goes wrong until its end is a `TruegaugeError`."""
    import http.client
    import urllib.error
    import urllib.parse
    import urllib.request

    from truegauge._truegauge import TruegaugeError

    base = _base(url)
    token = token or os.environ.get("TRUEGAUGE_TOKEN")
    if not base.startswith(("http://", "https://")):
        raise TruegaugeError(f"can't ask `{base}`: a URL starts with `http://` or `https://`")
    address = base + path + ("?" + urllib.parse.urlencode(query) if query else "")
    request = urllib.request.Request(address)  # noqa: S310 - the scheme was checked
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with _opener(base).open(request, timeout=TIMEOUT_SECONDS) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        text = error.read(4096).decode(errors="replace")
        raise TruegaugeError(f"`{address}` answered {error.code}: {_said(text)}") from None
    except urllib.error.URLError as error:
        reason = f"can't reach `{base}`: {error.reason}; start a server with `truegauge up`, or name"
        raise TruegaugeError(f"{reason} another with `url` or `TRUEGAUGE_URL`") from None
    except (OSError, http.client.HTTPException) as error:
        raise TruegaugeError(f"can't ask `{address}`: {error!r}; try again") from error


def _opener(base: str) -> Any:
    """Opens addresses of one server, and never takes the token elsewhere by a redirect.

    The server is believed by `TRUEGAUGE_CA_FILE` where that is set, and shown `TRUEGAUGE_CERT_FILE`.
    """
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    handlers: list[Any] = [Stay]
    if base.startswith("https://"):
        import ssl

        name = os.environ.get
        context = ssl.create_default_context(cafile=name("TRUEGAUGE_CA_FILE") or None)
        if certificate := name("TRUEGAUGE_CERT_FILE"):
            context.load_cert_chain(certificate, name("TRUEGAUGE_KEY_FILE") or None)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _said(text: str) -> str:
    """The sentence and the next step of an error's body, or the body itself."""
    import json

    try:
        error = json.loads(text)["error"]
        if isinstance(error, str):
            return error  # as Prometheus' API puts it
        return "; ".join(part for part in (error["message"], error.get("hint")) if part)
    except (ValueError, KeyError, TypeError):
        return text
