"""What `log` takes, and what it makes of everything else."""

from __future__ import annotations

import array
import collections
import decimal
import fractions
import math
import time
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

import truegauge as tg


def refused(run, **wanted):
    """Holds the counted refusals against `wanted`."""
    found = {k.removeprefix("dropped."): v for k, v in run.counters().items() if k.startswith("dropped.")}
    assert found == wanted


def kept(run) -> int:
    return run.counters()["logged"]


class Scalar:
    """A tensor without dimension."""

    ndim = 0

    def __float__(self) -> float:
        return 2.5


class OnlyDlpack:
    """Speaks DLPack and nothing else."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **_):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnlyInterface:
    """Has `__array_interface__` and nothing else."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.__array_interface__ = values.__array_interface__


class OnDevice:
    """A DLPack array on a device that must be asked for a copy."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **_):
        raise AssertionError("memory of a device was asked for")

    def __dlpack_device__(self):
        return (2, 0)

    def cpu(self):
        return OnlyDlpack(self.values)


class Old:
    """The sequence protocol of old."""

    def __len__(self):
        return 3

    def __getitem__(self, at):
        if at >= 3:
            raise IndexError(at)
        return at * 1.5


SCALARS = [
    (0.5, 0.5),
    (3, 3.0),
    (2**60, float(2**60)),
    (True, 1.0),
    (np.float32(0.25), 0.25),
    (np.float16(0.5), 0.5),
    (np.float64(0.1), 0.1),
    (np.int64(-4), -4.0),
    (np.bool_(True), 1.0),
    (np.array(7.5), 7.5),
    (decimal.Decimal("1.25"), 1.25),
    (fractions.Fraction(1, 4), 0.25),
    (Scalar(), 2.5),
    (OnlyDlpack(np.array(3.5)), 3.5),
]


@pytest.mark.parametrize(("value", "want"), SCALARS, ids=lambda v: f"{type(v).__name__}-{v}"[:40])
def test_scalar_is_a_point(online, value, want):
    with tg.init(project_name="p", run_name="r") as run:
        tg.log("v", value, step=9)
        assert tg.flush().where == "server"
        assert online.points(run.run_id, "v") == [(9, want)]
        refused(run)


RAMP = np.arange(6, dtype=np.float64)
ARRAYS = [
    [0.0, 1.5, 3.0],
    (0, 1.5, 3),
    np.array([0, 1.5, 3]),
    np.array([0, 1.5, 3], dtype=np.float32),
    np.array([0, 1.5, 3], dtype=np.float16),
    np.array([0, 1.5, 3], dtype=">f8"),
    np.array([0, 1.5, 3], dtype=object),
    np.arange(0.0, 6.0, 0.75)[::2][:3],
    array.array("d", [0, 1.5, 3]),
    array.array("f", [0, 1.5, 3]),
    memoryview(array.array("d", [0, 1.5, 3])),
    collections.deque([0, 1.5, 3]),
    Old(),
    OnlyDlpack(np.array([0, 1.5, 3])),
    OnlyDlpack(np.array([0, 1.5, 3], dtype=np.float16)),
    OnlyDlpack(np.array([0, 9, 1.5, 9, 3])[::2]),
    OnlyDlpack(np.array([3, 1.5, 0])[::-1]),
    OnlyInterface(np.array([0, 1.5, 3])),
    OnlyInterface(np.array([0, 1.5, 3], dtype=">f4")),
    OnlyInterface(np.array([3, 1.5, 0])[::-1]),
    OnDevice(np.array([0, 1.5, 3])),
]


def test_every_array_like_is_its_items(online):
    with tg.init(project_name="p", run_name="r") as run:
        for at, values in enumerate(ARRAYS):
            tg.log(f"v{at}", values, step=10)
        tg.flush()
        for at, values in enumerate(ARRAYS):
            got = online.points(run.run_id, f"v{at}")
            assert got == [(10, 0.0), (11, 1.5), (12, 3.0)], (at, type(values))
        refused(run)


INTEGERS = ["b", "B", "h", "H", "i", "I", "l", "L", "q", "Q"]


@pytest.mark.parametrize("code", INTEGERS)
def test_integers_of_every_width_keep_their_value(online, code):
    values = array.array(code, [0, 1, 100])
    with tg.init(project_name="p", run_name="r") as run:
        tg.log("buffer", values)
        tg.log("dlpack", OnlyDlpack(np.array(values)))
        tg.log("range", range(0, 101, 50))
        tg.log("bools", np.array([True, False]))
        tg.flush()
        assert online.points(run.run_id, "buffer") == [(0, 0.0), (1, 1.0), (2, 100.0)]
        assert online.points(run.run_id, "dlpack") == [(0, 0.0), (1, 1.0), (2, 100.0)]
        assert online.points(run.run_id, "range") == [(0, 0.0), (1, 50.0), (2, 100.0)]
        assert online.points(run.run_id, "bools") == [(0, 1.0), (1, 0.0)]


NOT_NUMBERS = [
    None,
    "1.0",
    b"1.0",
    bytearray(b"1"),
    1j,
    np.complex64(1j),
    {1.0},
    {"nested": 1.0},
    object(),
    10**400,
    np.datetime64("2026-01-01"),
    np.str_("1"),
    datetime(2026, 1, 1),
    OnlyDlpack(np.array([1j])),
    np.array([1j]),
]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda v: f"{type(v).__name__}-{v!r}"[:40])
def test_what_is_no_number_is_counted_and_said_once(run, value):
    with pytest.warns(tg.TruegaugeWarning, match=r"`loss`.*wanted|`loss`.*raised"):
        tg.log("loss", value)
    tg.log("loss", value)  # a second warning would be an error here
    assert kept(run) == 0
    refused(run, value_type=2)
    with pytest.raises(tg.RefusedError, match="`loss`"):
        tg.log("loss", value, strict=True)


def test_none_in_an_array_leaves_its_step_empty(online):
    with tg.init(project_name="p", run_name="r") as run:
        with pytest.warns(tg.TruegaugeWarning, match="item 1"):
            tg.log("v", [1.0, None, 3.0], step=5)
        tg.log("next", [0.0])
        tg.log("next", [1.0, "x", 3.0])
        tg.log("each", [1.0, 2j, 3.0], step=[7, 8, 9])
        tg.flush()
        assert online.points(run.run_id, "v") == [(5, 1.0), (7, 3.0)]
        assert online.points(run.run_id, "next") == [(0, 0.0), (1, 1.0), (3, 3.0)]
        assert online.points(run.run_id, "each") == [(7, 1.0), (9, 3.0)]
        refused(run, value_type=3)


@pytest.mark.parametrize("value", [[[1.0], [2.0, 3.0]], [np.zeros(2)]], ids=["ragged", "arrays"])
def test_arrays_within_a_list_are_refused_each(run, value):
    with pytest.warns(tg.TruegaugeWarning, match="value_shape|inside"):
        tg.log("v", value)
    assert kept(run) == 0
    refused(run, value_shape=len(value))


def test_more_than_one_dimension_is_refused_whole(run):
    with pytest.warns(tg.TruegaugeWarning, match="2 dimensions"):
        tg.log("v", np.zeros((2, 2)))
    tg.log("v", OnlyDlpack(np.zeros((2, 2))))
    assert kept(run) == 0
    refused(run, value_shape=2)


def test_empty_array_is_nothing(run):
    for empty in ([], (), np.array([]), range(0), OnlyDlpack(np.array([]))):
        tg.log("v", empty)
    assert kept(run) == 0
    refused(run)


def test_non_finite_values_are_values(online):
    with tg.init(project_name="p", run_name="r") as run:
        tg.log("v", [1.0, math.nan, math.inf, -math.inf])
        assert tg.flush().where == "server"
        (series,) = online.series(run.run_id, "v")
        assert series["points"] == 4
        refused(run)


def test_value_that_raises_is_refused_and_an_interrupt_goes_on(run):
    class Broken:
        ndim = 0

        def __init__(self, error):
            self.error = error

        def __float__(self):
            raise self.error

    with pytest.warns(tg.TruegaugeWarning):
        tg.log("v", Broken(RuntimeError("no")))
    refused(run, value_type=1)
    with pytest.raises(KeyboardInterrupt):
        tg.log("v", Broken(KeyboardInterrupt()))


class Endless:
    """A sequence whose end never comes."""

    def __len__(self):
        return 2**62

    def __getitem__(self, at):
        return 1.0


@pytest.mark.parametrize("value", [Endless(), range(10**9)], ids=["endless", "range"])
def test_more_items_than_memory_takes_are_refused_at_once(run, value):
    with pytest.warns(tg.TruegaugeWarning, match="at most 16777216"):
        tg.log("v", value)
    with pytest.warns(tg.TruegaugeWarning, match="at most 16777216"):
        tg.log("v", 1.0, step=value)
    assert kept(run) == 0
    refused(run, value_shape=1, step=1)


GOOD_STEPS = [
    (7, 7),
    (np.int32(7), 7),
    (7.0, 7),
    (np.float32(7), 7),
    (np.array(7), 7),
    ([7], 7),
    (-(2**63), -(2**63)),
]


@pytest.mark.parametrize(("step", "want"), GOOD_STEPS, ids=repr)
def test_whole_numbers_are_steps(run, step, want):
    tg.log("v", 1.0, step=step)
    assert tg.get_last_step("v") == want
    refused(run)


@pytest.mark.parametrize("step", [math.nan, 0.5, "7", 2**63, [1, 2], 1j, object()], ids=repr)
def test_other_steps_are_refused(run, step):
    with pytest.warns(tg.TruegaugeWarning, match="step"):
        tg.log("v", 1.0, step=step)
    assert tg.get_last_step("v") is None
    refused(run, step=1)


def test_steps_go_on_from_the_last_and_may_go_back(run):
    steps = []
    for step in (None, None, 10, None, 3, None):
        tg.log("v", 1.0, step=step)
        steps.append(tg.get_last_step("v"))
    assert steps == [0, 1, 10, 11, 3, 4]
    refused(run)


def test_steps_of_an_array_must_be_as_many(online):
    with tg.init(project_name="p", run_name="r") as run:
        tg.log("each", [1.0, 2.0], step=np.array([30, 10]))
        with pytest.warns(tg.TruegaugeWarning, match="3 steps for 2 values"):
            tg.log("count", [1.0, 2.0], step=[1, 2, 3])
        tg.log("holes", [1.0, 2.0, 3.0], step=[1, math.nan, 3])
        tg.flush()
        assert sorted(online.points(run.run_id, "each")) == [(10, 2.0), (30, 1.0)]
        assert online.points(run.run_id, "holes") == [(1, 1.0), (3, 3.0)]
        refused(run, step=3)


MOMENT = 1_800_000_000_000
TIMES = [
    MOMENT,
    np.int64(MOMENT),
    MOMENT / 1000,
    np.float64(MOMENT / 1000),
    datetime.fromtimestamp(MOMENT / 1000),
    datetime.fromtimestamp(MOMENT / 1000, timezone.utc),
    datetime.fromtimestamp(MOMENT / 1000, timezone(timedelta(hours=5))),
]


def test_timestamps_are_millis_seconds_or_datetimes(online):
    with tg.init(project_name="p", run_name="r") as run:
        for at, moment in enumerate(TIMES):
            tg.log(f"v{at}", 1.0, timestamp=moment)
        tg.flush()
        for at, moment in enumerate(TIMES):
            (series,) = online.series(run.run_id, f"v{at}")
            assert series["first_time_ms"] == MOMENT, moment
        refused(run)


class Slow:
    """A scalar that is known a millisecond later, as a tensor that waits for its device."""

    def __float__(self) -> float:
        asked = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == asked:
            pass
        return 1.0


def test_points_of_one_call_have_one_time(online):
    names = [f"v{number}" for number in range(40)]
    with tg.init(project_name="p", run_name="r") as run:
        for step in range(2):
            values = dict.fromkeys(names, 1.0) | {"first": Slow(), "second": Slow()}
            tg.log(values, step=step)
        tg.log({"third": Slow(), "fourth": [1.0, 2.0]}, step=2)
        tg.log({"fifth": Slow(), "sixth": Slow()}, step=2, labels={"split": "val"})
        tg.flush()
        for together in ([*names, "first", "second"], ["third", "fourth"], ["fifth", "sixth"]):
            found = [online.series(run.run_id, name)[0] for name in together]
            times = {(series["first_time_ms"], series["last_time_ms"]) for series in found}
            assert len(times) == 1, together
        refused(run)


@pytest.mark.parametrize("moment", ["now", math.nan, math.inf, 1e12, 10**19, True, object()], ids=repr)
def test_other_timestamps_are_refused(run, moment):
    with pytest.warns(tg.TruegaugeWarning, match="timestamp"):
        tg.log({"a": 1.0, "b": 2.0}, timestamp=moment)
    assert kept(run) == 0
    refused(run, timestamp=2)


BAD_NAMES = ["", "n" * 257, "a\x00b", "a\nb", None, 7, b"loss", "\ud800"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda n: repr(n)[:20])
def test_names_that_are_not_usable_are_refused(run, name):
    with pytest.warns(tg.TruegaugeWarning, match="metric name"):
        tg.log(name, 1.0)
    assert kept(run) == 0
    refused(run, metric_name=1)


def test_odd_names_are_kept(online):
    names = ["<img src=x onerror=alert(1)>", "θ/loss", "n" * 256, "a b"]
    with tg.init(project_name="p", run_name="r") as run:
        tg.log(dict.fromkeys(names, 1.0))
        tg.flush()
        for name in names:
            assert online.series(run.run_id, name)[0]["points"] == 1
        refused(run)


BAD_LABELS = [
    ({"k": "v" * 65}, "label_too_long"),
    ({"k" * 65: "v"}, "label_too_long"),
    ({"": "v"}, "label_key"),
    ({"a b": "v"}, "label_key"),
    ({"run_id": "v"}, "label_key"),
    ({1: "v"}, "label_key"),
    ({"k": None}, "label_value"),
    ({"k": [1]}, "label_value"),
    ({"user_id": "7"}, "label_refused"),
    ({f"k{n}": "v" for n in range(31)}, "label_count"),
    ([("k", "v")], "label_key"),
    ("k=v", "label_key"),
]


@pytest.mark.parametrize(("labels", "reason"), BAD_LABELS, ids=lambda v: repr(v)[:30])
def test_labels_that_are_not_usable_are_refused(run, labels, reason):
    with pytest.warns(tg.TruegaugeWarning, match="label"):
        tg.log("v", 1.0, labels=labels)
    assert kept(run) == 0
    refused(run, **{reason: 1})


def test_labels_scale_and_evaluation_name_series(online):
    with tg.init(project_name="p", run_name="r") as run:
        for _ in range(2):  # the second time from the cache
            tg.log("v", 1.0, labels={"split": "train", "fold": 3, "half": 0.5})
            tg.log("v", 2.0, labels={"split": "val"}, evaluation=True)
            tg.log("v", 3.0, evaluation=False)
            tg.log("v", 4.0, scale="EPISODE")
            tg.log("v", 5.0)
        tg.flush()
        found = {
            (frozenset(s["labels"].items()), s["scale"]): (s["points"], s["last"])
            for s in online.series(run.run_id, "v")
        }
        wanted = {
            (frozenset({("split", "train"), ("fold", "3"), ("half", "0.5")}), "ML_STEP"): (2, 1.0),
            (frozenset({("split", "val"), ("evaluation", "true")}), "ML_STEP"): (2, 2.0),
            (frozenset({("evaluation", "false")}), "ML_STEP"): (2, 3.0),
            (frozenset(), "EPISODE"): (2, 4.0),
            (frozenset(), "ML_STEP"): (2, 5.0),
        }
        assert found == wanted
        refused(run)


def test_scale_must_be_text(run):
    with pytest.warns(tg.TruegaugeWarning, match="scale"):
        tg.log("v", 1.0, scale=3)
    refused(run, scale=1)


def test_mapping_keeps_what_is_good(run):
    with pytest.warns(tg.TruegaugeWarning):
        tg.log(collections.OrderedDict(a=1.0, b=None, c=[1.0, 2.0]), step=4)
    with pytest.warns(tg.TruegaugeWarning):
        tg.log({"a": 1.0, 7: 1.0, "d": 2.0})
    assert kept(run) == 5
    assert [tg.get_last_step(n) for n in ("a", "c", "d")] == [5, 5, 0]
    refused(run, value_type=1, metric_name=1)


def test_second_positional_beside_a_mapping_is_said_and_the_points_kept(run):
    with pytest.warns(tg.TruegaugeWarning, match="step="):
        tg.log({"a": 1.0}, 10)
    assert kept(run) == 1
    refused(run, arguments=1)


def test_thousands_of_passing_names_do_not_mix(run):
    # Names that are freed leave addresses which other names take.
    for at in range(20_000):
        tg.log(f"v{at % 5000}", float(at % 5000), step=at)
    assert kept(run) == 20_000
    for at in range(0, 5000, 617):
        assert tg.get_last_step(f"v{at}") == 15_000 + at


def test_subclasses_of_builtins_are_what_they_derive_from(run):
    class Name(str):
        __slots__ = ()

    class Number(float):
        pass

    tg.log(Name("v"), Number(0.5), step=3)
    tg.log(Name("v"), np.float64(0.5), labels={Name("k"): Name("v")})
    assert kept(run) == 2
    assert tg.get_last_step("v") == 3
    refused(run)


def test_log_from_a_value_that_logs_itself(run):
    class Chatty:
        ndim = 0

        def __float__(self):
            tg.log("inner", 1.0)
            return 2.0

    tg.log({"outer": Chatty(), "plain": 1.0})
    assert kept(run) == 3
