"""Reading back: runs, what they were given and what they measured."""

from __future__ import annotations

import http.server
import io
import math
import os
import threading
import urllib.parse
import urllib.request

import pandas
import pyarrow
import pyarrow.parquet
import pytest

import truegauge as tg


@pytest.fixture
def filled(online):
    """Two runs: `a` with 100 steps, some odd values and two ranks; `b` with 10 steps and other attributes."""
    for name, steps, lr in (("a", 100, 0.1), ("b", 10, 0.2)):
        with tg.init(
            project_name="p", run_name=name, config={"lr": lr, "name": "x"}, tags=["all", f"only-{name}"]
        ):
            for at in range(steps):
                tg.log("train/loss", float(at), step=at, timestamp=1_700_000_000.0 + at)
            if name == "a":
                tg.log("odd", math.nan, step=0)
                tg.log("odd", -math.inf, step=1)
                tg.log("busy", 1.0, labels={"rank": "0"})
                tg.log("busy", 2.0, labels={"rank": "1", "step": "s"})


def named(name: str) -> tg.StoredRun:
    (run,) = tg.runs(name=name)
    return run


def test_runs_are_filtered_sorted_and_still_plain_dicts(filled):
    assert [run["run"] for run in tg.runs(project="p")] == ["b", "a"]
    assert [run["run"] for run in tg.runs(sort="name")] == ["a", "b"]
    assert [run["run"] for run in tg.runs(tags="only-a")] == ["a"]
    assert [run["run"] for run in tg.runs(tags=["all", "only-b"])] == ["b"]
    assert [run["run"] for run in tg.runs(filter="train/loss:>50")] == ["a"]
    assert tg.runs(name="nobody") == []
    run = named("a")
    assert isinstance(run, dict)
    assert run["state"] == "finished"
    assert run.attributes["config/lr"] == 0.1
    with pytest.raises(tg.TruegaugeError, match="state"):
        tg.runs(state="fast")


def test_a_list_of_runs_is_a_table(filled):
    frame = tg.runs(sort="name", filter="project:p").to_pandas(["config/lr", "config/none"])
    assert frame["run"].to_list() == ["a", "b"]
    assert frame["config/lr"].to_list() == [0.1, 0.2]
    assert frame["config/none"].isna().all()
    assert frame["metric"].to_list() == ["train/loss", "train/loss"]
    assert frame["last"].to_list() == [99.0, 9.0]
    assert isinstance(frame["started"].dtype, pandas.DatetimeTZDtype)
    table = tg.runs(sort="name").to_arrow(["config/lr", "config/name"])
    assert table.column("config/name").to_pylist() == ["x", "x"]
    assert table.schema.field("created").type == pyarrow.timestamp("ms", "UTC")
    assert tg.runs(name="nobody").to_pandas().empty
    assert tg.runs(name="nobody").to_arrow().num_rows == 0


def test_points_are_complete_and_exact(filled):
    run = named("a")
    displays = {(one["display"], one["labels"].get("rank")) for one in run.metrics()}
    assert displays == {("train/loss", None), ("odd", None), ("busy", "0"), ("busy", "1")}
    points = run.points()
    assert len(points) == 104
    odd = run.points("odd").columns()
    assert math.isnan(odd["value"][0])
    assert odd["value"][1] == -math.inf
    columns = run.points("busy").columns()
    assert columns["rank"] == ["0", "1"]
    assert columns["label_step"] == [None, "s"]
    loss = run.points("train/loss")
    assert [row["step"] for row in loss] == list(range(100))
    table = loss.to_arrow()
    assert table.column("value").to_pylist() == [float(at) for at in range(100)]
    assert table.schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    assert loss.to_pandas()["time"].iloc[0] == pandas.Timestamp("2023-11-14T22:13:20Z")
    assert len(run.points("train_loss")) == 100, "the PromQL name answers as well"
    with pytest.raises(tg.TruegaugeError, match=r"no metric `nope`.*run.metrics"):
        run.points("nope")


def test_history_lies_along_an_axis(filled):
    run = named("a")
    steps = run.history("train/loss")
    assert list(steps.columns) == ["step", "value", "attempt"]
    assert steps["step"].to_list() == list(range(100))
    times = run.history("train/loss", axis="time")
    assert times["time"].is_monotonic_increasing
    relative = run.history("busy", axis="relative")
    assert list(relative.columns) == ["relative", "value", "attempt", "rank", "label_step"]
    assert relative["relative"].between(0, 600).all()
    with pytest.raises(ValueError, match="use `step`, `time` or `relative`"):
        run.history("train/loss", axis="epoch")


def test_a_later_attempt_comes_after_the_one_that_it_replaces(online):
    with tg.init(project_name="p", run_name="r") as first:
        for at in range(10):
            tg.log("loss", 1.0, step=at)
        first.flush()
    with tg.init(project_name="p", run_name="r", resume_strategy="allow"):
        for at in range(5, 8):
            tg.log("loss", 2.0, step=at)
    (run,) = tg.runs(name="r")
    curve = run.history("loss").drop_duplicates("step", keep="last")
    assert curve["value"].to_list() == [1.0] * 5 + [2.0] * 3 + [1.0] * 2


def test_an_exported_file_is_read_by_arrow_as_the_points_are(filled):
    run = named("a")
    query = urllib.parse.urlencode({"run_id": run["run_id"], "format": "parquet"})
    with urllib.request.urlopen(f"{os.environ['TRUEGAUGE_URL']}/api/tg/v1/export?{query}") as answer:
        table = pyarrow.parquet.read_table(io.BytesIO(answer.read()))
    assert table.schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    order = [("metric", "ascending"), ("rank", "ascending"), ("time", "ascending")]
    names = ["metric", "time", "step", "attempt", "value", "rank", "label_step"]
    exported = table.sort_by(order).select(names).to_pandas()
    asked = run.points().to_arrow().sort_by(order).select(names).to_pandas()
    pandas.testing.assert_frame_equal(exported, asked, check_dtype=False)
    assert len(exported) == 104


class Cut(http.server.BaseHTTPRequestHandler):
    """Sends less than it announces, in the two ways in which a length is announced."""

    protocol_version = "HTTP/1.1"
    chunked = False

    def do_GET(self):
        body = b'{"metric":"loss","labels":{},"value":1.0}\n'
        self.send_response(200)
        if self.chunked:
            self.send_header("transfer-encoding", "chunked")
            body = b"%x\r\n%s\r\n" % (len(body), body)
        else:
            self.send_header("content-length", str(len(body) * 2))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_that_breaks_off_is_an_error_and_not_half_a_table(chunked, monkeypatch):
    monkeypatch.setattr(Cut, "chunked", chunked)
    with http.server.HTTPServer(("127.0.0.1", 0), Cut) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        run = tg.StoredRun({"run": "r", "run_id": "0" * 16, "state": "finished"}, (url, None))
        with pytest.raises(tg.TruegaugeError, match="try again"):
            run.points("loss")
