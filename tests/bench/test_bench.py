"""How things grow: real processes on small catalogs."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fairsync.bench import Measurement, MeasurementPoint, make_points, run
from fairsync.bench.table import growth_table
from fairsync.cli import app
from fairsync.errors import FairSyncError, InvalidInputError


def test_one_thing_grows_and_all_else_stays() -> None:
    points = make_points(["exact"], ["k", "shards"], base=MeasurementPoint("exact", items=500, groups=5))
    assert [point.k for point in points["k"]] == [10, 50, 200]  # not more than there are items
    assert {(point.items, point.groups, point.shards) for point in points["k"]} == {(500, 5, 1)}
    assert [point.shards for point in points["shards"]] == [1, 2, 4, 8, 16]


def test_what_would_take_forever_is_left_out() -> None:
    assert MeasurementPoint("hnsw", items=200_000).left_out
    assert MeasurementPoint("one-hot", items=1_000_000, groups=1_000).left_out
    assert MeasurementPoint("exact", items=10**9).left_out is None


def test_unknown_names_are_told() -> None:
    with pytest.raises(InvalidInputError, match="'colour'"):
        make_points(["exact"], ["colour"])
    with pytest.raises(InvalidInputError, match="'best'"):
        make_points(["best"])


def test_figures_are_of_the_point_they_name() -> None:
    small, large = (
        MeasurementPoint("exact", items=2_000, groups=5, k=10),
        MeasurementPoint("exact", items=40_000, groups=5, k=10),
    )
    sharded = MeasurementPoint("exact", items=2_000, groups=5, k=10, shards=3)
    seen: list[str] = []
    figures = run({"items": [small, large], "shards": [small, sharded]}, watch=lambda what, point: seen.append(what))
    assert seen == ["items", "items", "shards", "shards"]
    assert [one.embeddings_bytes for one in figures] == [4 * 64 * n for n in (2_000, 40_000, 2_000, 2_000)]
    assert all(one.recall == 1 for one in figures)  # exact is exact, in shards too
    assert figures[0].ms_batch == figures[2].ms_batch  # measured once
    assert figures[1].memory_bytes is None or figures[1].memory_bytes > figures[1].embeddings_bytes


def test_what_was_left_out_keeps_its_line() -> None:
    measured = MeasurementPoint("exact", items=1_000, groups=5, k=10)
    figure = Measurement("items", measured, 1.5, 1_000_000, 2_000_000, None, 0.5, 4.0, 2.0, 0.25, 0.75)
    shown = io.StringIO()
    Console(file=shown, width=160).print(
        growth_table("items", [measured, MeasurementPoint("hnsw", items=1_000_000)], [figure])
    )
    header, _, first, second = [line.split() for line in shown.getvalue().splitlines()[2:6]]
    assert first == ["1,000", "exact", "1.5", "2", "2.00", "–", "0.500", "2.00", "4.00", "0.25", "0.750"]
    assert second == ["1,000,000", "hnsw", *"–" * 9]
    assert header[:2] == ["items", "index"]


def test_a_point_that_fails_says_which() -> None:
    with pytest.raises(FairSyncError, match="nonsense"):
        run({"items": [MeasurementPoint("nonsense", items=100, groups=2, k=5)]})


def test_the_command_writes_what_it_prints(tmp_path: Path) -> None:
    given = ["bench", "items", "--index", "exact", "--index", "one-hot", "--most-items", "1000", "--k", "5"]
    done = CliRunner().invoke(app, [*given, "--groups", "4", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "As items grow" in done.output
    document = json.loads((tmp_path / "bench.json").read_text())
    assert [(one["point"]["index"], one["point"]["items"]) for one in document["figures"]] == [
        ("exact", 1000),
        ("one-hot", 1000),
    ]
    assert (tmp_path / "growth.png").stat().st_size > 10_000
