"""Reading back: PromQL from Python."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import pandas
import pytest

import truegauge as tg


@pytest.fixture
def filled(online):
    """Two runs of known points, a second apart."""
    start = float(int(datetime.now(timezone.utc).timestamp()) - 120)
    for name, first in (("a", 1.0), ("b", 2.0)):
        with tg.init(project_name="p", run_name=name):
            for at in range(100):
                tg.log("loss", first + at, step=at, timestamp=start + at)
    return start


def test_a_moment_gives_one_value_a_series(filled):
    answer = tg.query('sum by (run) (count_over_time(loss{project="p"}[1h]))')
    assert (answer.kind, len(answer), answer.warnings) == ("vector", 2, [])
    assert {one.labels["run"]: one.values for one in answer} == {"a": [100.0], "b": [100.0]}
    earlier = tg.query('loss{run="a"}', time=filled + 50.5)
    assert earlier.series[0].values == [51.0]
    assert earlier.series[0].times == pytest.approx([filled + 50.5], abs=0.001)
    assert tg.query("1 / 0").series[0].values == [math.inf]


def test_a_range_gives_values_over_time(filled):
    wanted = {"start": filled + 10, "end": datetime.fromtimestamp(filled + 30, timezone.utc), "step": 10}
    answer = tg.query("max by (run) (loss)", **wanted)
    assert answer.kind == "matrix"
    assert [one.values for one in answer] == [[11.0, 21.0, 31.0], [12.0, 22.0, 32.0]]
    table = answer.columns()
    assert list(table) == ["time", "run", "value"]
    assert table["run"] == ["a"] * 3 + ["b"] * 3
    whole = tg.query("loss", start=timedelta(minutes=3), step=timedelta(seconds=5))
    assert all(len(one.times) > 20 for one in whole)


def test_tables_are_made_where_their_library_is(filled):
    frame = tg.query("loss", start=filled, end=filled + 10, step=5).to_pandas()
    assert frame["time"].iloc[0] == pandas.Timestamp(filled, unit="s", tz="UTC")
    assert frame.groupby("run")["value"].last().to_dict() == {"a": 11.0, "b": 12.0}


def test_a_mistake_is_named_with_its_place(filled):
    with pytest.raises(tg.TruegaugeError, match="1:5"):
        tg.query("sum(")
    with pytest.raises(tg.TruegaugeError, match="truegauge up"):
        tg.query("up", url="http://127.0.0.1:9")
