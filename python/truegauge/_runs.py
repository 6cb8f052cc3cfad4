"""Runs as they are stored: what they are called, what they were given, what they measured."""

from __future__ import annotations

from truegauge._query import ask, lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_AXES = ("step", "time", "relative")
_NUMBERS = {"NaN": float("nan"), "+Inf": float("inf"), "-Inf": float("-inf")}
_PAGE_ROWS = 1000


class StoredRun(dict):  # type: ignore[type-arg]
    """A run as the server has it: a dict with the keys of `GET /api/tg/v1/runs`, and what can be asked of it.

    Keys are `run_id`, `organization`, `workspace`, `project`, `run`, `state`, `started_ms`, `ended_ms`,
    `elapsed_seconds`, `attempts`, `hosts`, `tags`, `last_step`, `points` and others; times are
    milliseconds since the epoch.

    Attributes:
        attributes: What the run was given, by path-like key: `config/lr`, `system/platform`. Asked for
            when first read; a `TruegaugeError` where the server can't be reached.
    """

    __slots__ = ("_attributes", "_where")

    def __init__(self, row: dict[str, Any], where: tuple[str | None, str | None]) -> None:
        super().__init__(row)
        self._where = where
        self._attributes: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<StoredRun {self['run']} {self['run_id']} {self['state']}>"

    @property
    def attributes(self) -> dict[str, Any]:
        """What the run was given, by path-like key: `config/lr`, `system/platform`; asked for once.

        Raises:
            TruegaugeError: The server can't be reached, or the run is not there any more.
        """
        if self._attributes is None:
            answer = ask(*self._where, f"/api/tg/v1/runs/{self['run_id']}", {})
            self._attributes = {key: _number(value) for key, value in answer["attributes"].items()}
        return self._attributes

    def metrics(self) -> list[dict[str, Any]]:
        """The series of the run without their points, by name, then labels.

        Returns:
            One dict a series: `display` (name as logged), `name` (PromQL name), `labels`, `scale`,
            `points`, `last`, `last_step`, `unit`, `help`, `caveat` and others.

        Raises:
            TruegaugeError: The server can't be reached, or the run is not there any more.
        """
        answer = ask(*self._where, f"/api/tg/v1/runs/{self['run_id']}/metrics", {})
        return [one | {"last": _number(one["last"])} for one in answer["metrics"]]

    def points(self, metric: str | None = None) -> Points:
        """Every raw point, complete and exact, by series and time.

        Args:
            metric: Only this one, by its name as logged or its PromQL name; by default all.

        Raises:
            TruegaugeError: The server can't be reached, the run is not there any more, or it has no
                such metric.

        Example:
            >>> run = tg.runs(project="llm")[0]  # doctest: +SKIP
            >>> run.points("train/loss").to_arrow().num_rows  # doctest: +SKIP
            1000
        """
        query = {"format": "ndjson"} | ({"metric": metric} if metric else {})
        found = list(lines(*self._where, f"/api/tg/v1/runs/{self['run_id']}/export", query))
        if metric and not found:
            from truegauge._truegauge import TruegaugeError

            raise TruegaugeError(
                f"the run `{self['run']}` has no metric `{metric}`; `run.metrics()` lists those it has"
            )
        return Points(found)

    def history(self, metric: str, *, axis: str = "step") -> Any:
        """One metric along an axis; pandas must be installed.

        Args:
            metric: Its name as logged or its PromQL name.
            axis: `step`, `time`, or `relative`: seconds since the run began.

        Returns:
            A `pandas.DataFrame`, a row a point, in order of the axis. Columns: the axis, `value`,
            `attempt` and one for each label of the metric. Along `step` points without one are left
            out; where an attempt took steps again, the later attempt's row is the later one, so that
            `drop_duplicates("step", keep="last")` gives the curve that counts.

        Raises:
            TruegaugeError: The server can't be reached, or the run has no such metric.
            ValueError: There is no such axis.

        Example:
            >>> tg.runs(project="llm")[0].history("train/loss").plot("step", "value")  # doctest: +SKIP
        """
        if axis not in _AXES:
            raise ValueError(f"axis is `{axis}`: use `step`, `time` or `relative`")
        frame = self.points(metric).to_pandas()
        if axis == "relative":
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

            start = pandas.Timestamp(self["started_ms"], unit="ms", tz="UTC")
            frame["relative"] = (frame["time"] - start).dt.total_seconds()
        frame = frame.dropna(subset=[axis])
        others = ("metric", "scale", *_AXES, "value", "attempt")
        labels = [name for name in frame.columns if name not in others]
        frame = frame.sort_values([axis, "attempt"], kind="stable")
        return frame[[axis, "value", "attempt", *labels]].reset_index(drop=True)


class Points:
    """Raw points, a row each; iterating gives dicts.

    A row has `metric` (name as logged), `labels`, `scale`, `attempt`, `step` (or None), `time_ns`
    (nanoseconds since the epoch) and `value`.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["value"] = _number(row["value"])
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<{len(self)} points>"

    def columns(self) -> dict[str, list[Any]]:
        """The points as columns of equal length.

        Returns:
            `metric`, `step`, `time_ns`, `value`, `attempt`, `scale`, then one column a label (None
            where a series lacks it); a label named as one of these has `label_` in front.
        """
        fixed = ("metric", "step", "time_ns", "value", "attempt", "scale")
        table: dict[str, list[Any]] = {name: [row[name] for row in self.rows] for name in fixed}
        for label in sorted({label for row in self.rows for label in row["labels"]}):
            name = f"label_{label}" if label in (*fixed, "time") else label
            table[name] = [row["labels"].get(label) for row in self.rows]
        return table

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; pandas must be installed.

        Returns:
            The columns of `columns()`; `time`, a UTC timestamp, in place of `time_ns`; `step` is a
            nullable integer.
        """
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        frame = pandas.DataFrame(self.columns())
        frame["time_ns"] = pandas.to_datetime(frame["time_ns"].astype("int64"), unit="ns", utc=True)
        frame["step"] = frame["step"].astype("Int64")
        return frame.rename(columns={"time_ns": "time"})

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`: `time` is a timestamp in nanoseconds, UTC; pyarrow must be installed."""
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        columns = self.columns()
        times = pyarrow.array(columns.pop("time_ns"), pyarrow.int64()).cast(pyarrow.timestamp("ns", "UTC"))
        typed = {"step": pyarrow.int64(), "attempt": pyarrow.int64(), "value": pyarrow.float64()}
        text = pyarrow.string()
        arrays = {name: pyarrow.array(values, typed.get(name, text)) for name, values in columns.items()}
        head = {name: arrays.pop(name) for name in ("metric", "step")}
        return pyarrow.table(head | {"time": times} | arrays)


class Runs(list):  # type: ignore[type-arg]
    """Runs as a list of `StoredRun`, and as a table."""

    def columns(self, attributes: Sequence[str] = ()) -> dict[str, list[Any]]:
        """A row a run, as columns of equal length.

        Args:
            attributes: Keys of attributes that get a column each, such as `config/lr`; asks the server
                once a run.

        Returns:
            The keys of the runs but `metric`; in its place `metric` (its name) and `last`.
        """
        keys = [key for key in (self[0] if self else {}) if key != "metric"]
        table: dict[str, list[Any]] = {key: [run.get(key) for run in self] for key in keys}
        shown = [run.get("metric") or {} for run in self]
        table["metric"] = [one.get("name") for one in shown]
        table["last"] = [_number(one.get("last")) for one in shown]
        for key in attributes:
            table[key] = [run.attributes.get(key) for run in self]
        return table

    def to_pandas(self, attributes: Sequence[str] = ()) -> Any:
        """A `pandas.DataFrame`, `*_ms` as UTC timestamps under the name without it; pandas must be installed.

        Args:
            attributes: Keys of attributes that get a column each, such as `config/lr`.
        """
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        frame = pandas.DataFrame(self.columns(attributes))
        for name in [name for name in frame.columns if name.endswith("_ms")]:
            frame[name] = pandas.to_datetime(frame[name], unit="ms", utc=True)
            frame = frame.rename(columns={name: name.removesuffix("_ms")})
        return frame

    def to_arrow(self, attributes: Sequence[str] = ()) -> Any:
        """A `pyarrow.Table`, `*_ms` as UTC timestamps under the name without it; pyarrow must be installed.

        Args:
            attributes: Keys of attributes that get a column each; one whose values are not all of one
                type is text.
        """
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        arrays = {}
        for name, values in self.columns(attributes).items():
            if name.endswith("_ms"):
                times = pyarrow.array(values, pyarrow.int64())
                arrays[name.removesuffix("_ms")] = times.cast(pyarrow.timestamp("ms", "UTC"))
                continue
            try:
                arrays[name] = pyarrow.array(values)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
                arrays[name] = pyarrow.array([None if value is None else str(value) for value in values])
        return pyarrow.table(arrays)


def runs(
    *,
    organization: str | None = None,
    workspace: str | None = None,
    project: str | None = None,
    name: str | None = None,
    tags: str | Sequence[str] | None = None,
    state: str | None = None,
    filter: str | None = None,  # noqa: A002 - as the list of runs and the command call it
    sort: str | None = None,
    limit: int = 200,
    url: str | None = None,
    token: str | None = None,
) -> Runs:
    """Lists runs, newest first.

    Args:
        organization: Only runs of this organization.
        workspace: Only runs of this workspace.
        project: Only runs of this project.
        name: Only runs of this name.
        tags: Only runs that have this tag, or all of these.
        state: Only runs in this state: `running`, `stale`, `failed`, `finished` or `paused`.
        filter: Only runs that pass, in the words of the list of runs: `loss:<0.5 -tag:debug`.
        sort: Keys such as `loss` or `-started`, several with commas.
        limit: At most so many.
        url: The server; by default `TRUEGAUGE_URL`, else `http://127.0.0.1:9494`.
        token: Bearer token; by default `TRUEGAUGE_TOKEN`.

    Returns:
        A list of `StoredRun`: dicts with the keys of `GET /api/tg/v1/runs`, which can be asked for
        `metrics()`, `points()`, `history()` and `attributes`. Times are milliseconds since the epoch.
        `to_pandas()` and `to_arrow()` make a table of the list.

    Raises:
        TruegaugeError: The server can't be reached or refuses.

    Example:
        >>> [run["run"] for run in tg.runs(project="llm", state="running")]  # doctest: +SKIP
        ['pretrain-7b']
        >>> tg.runs(project="llm").to_pandas(["config/lr"])[["run", "config/lr", "last"]]  # doctest: +SKIP
    """
    fits = _condition(
        {"organization": organization, "workspace": workspace, "project": project, "run": name},
        [tags] if isinstance(tags, str) else list(tags or ()),
    )
    query = {"state": state, "filter": filter, "sort": sort, "limit": str(_PAGE_ROWS)}
    asked = {key: value for key, value in query.items() if value}
    found = Runs()
    cursor: str | None = None
    while len(found) < limit:
        page = ask(url, token, "/api/tg/v1/runs", asked | ({"cursor": cursor} if cursor else {}))
        found += [StoredRun(row, (url, token)) for row in page["runs"] if fits(row)]
        cursor = page.get("next")
        if not cursor:
            break
    del found[limit:]
    return found


def _condition(wanted: Mapping[str, str | None], tags: list[str]) -> Callable[[dict[str, Any]], bool]:
    exact = {key: value for key, value in wanted.items() if value is not None}

    def fits(row: dict[str, Any]) -> bool:
        return all(row.get(key) == value for key, value in exact.items()) and set(tags) <= set(row["tags"])

    return fits


def _number(value: Any) -> Any:
    """JSON has no word for NaN and infinities; the server writes them as text."""
    return _NUMBERS.get(value, value) if isinstance(value, str) else value
