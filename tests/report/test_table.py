"""The table and the text of a report."""

import math
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

import fairsync as fs
from fairsync.report.table import by_need
from report.made import report


def test_the_text_says_it_all() -> None:
    text = str(report([20, 5, 1200], [20, 20, 20], prices=[0.0, -0.125, math.inf], requests=5, forced=3))
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert lines["g1"].split() == ["g1", "20", "5", "███", "25%", "−0.1250", "behind"]
    assert lines["g2"].split() == ["g2", "20", "1,200", "████████████", "60×", "masked", "kept"]
    assert "ESP 66.7% (2 of 3 promises) · 5 of 10 requests · cost at most 10% of relevance" in text
    assert "guard forced 3 of 20 slots" in " ".join(text.split())
    assert "Still missing: 15 exposures in 1 group, with 5 requests to come." in text
    assert "The promise is for the whole horizon" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_the_text_at_the_end() -> None:
    assert "and 1 exposure in 1 group was missed" in str(report([20, 19], [20, 20]))
    assert "and 5 exposures in 2 groups were missed" in str(report([17, 18], [20, 20]))
    over = str(report([20, 20], [20, 20], past=[[20, 20], [0, 20]]))
    assert "every floor was kept. Of 2 horizons before this one, 1 kept every floor." in over


def test_the_text_has_the_cost_of_each_promise() -> None:
    made = report([40, 30, 20], [20, 30, 0], subsidies=[0.0, 15.0, 0.0], given_up=[0.0, 2.5, 0.0])
    lines = {line.split()[0]: line for line in str(made).splitlines() if line.strip()}
    assert lines["g1"].split()[-4:] == ["0", "0.5000", "2.5%", "kept"]
    assert lines["g2"].split() == ["g2", "0", "20", "no", "floor", "0", "no", "promise"]
    assert max(map(len, lines.values())) <= 100
    unmeasured = str(report([40], [20], subsidies=[0.0], given_up=[math.nan]))
    assert "–" in unmeasured


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, ["floor", "exposures"]),
        (80, ["floor", "exposures", "share", "cost"]),
        (100, ["floor", "exposures", "share", "price", "cost"]),
        (120, ["floor", "exposures", "share", "of", "floor", "price", "mean", "subsidy", "cost"]),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_whole_figures(width: int, columns: list[str]) -> None:
    made = report(
        [1_234_567, 30, 20], [20, 1_000_000, 0], labels=["a category with a long name", "g1", "g2"],
        prices=[0.0, -0.125, 0.0], subsidies=[0.0, 15.0, 0.0], given_up=[0.0, 2.5, 0.0],
    )  # fmt: skip
    file = StringIO()
    Console(width=width, file=file, color_system=None).print(made)
    lines = {line.split()[0]: line.split() for line in file.getvalue().splitlines() if line.strip()}
    assert lines["group"] == ["group", *columns, "status"]
    assert {"20", "1,234,567", "kept"} <= set(lines["a"])
    assert lines["g1"][:3] == ["g1", "1,000,000", "30"]
    assert lines["g1"][-1] == "missed"


def test_the_text_without_promises() -> None:
    text = str(report([40, 30], [0, 0]))
    assert "no promises · 10 of 10 requests" in text
    assert "No group has a floor." in text
    assert "kept" not in text


def test_groups_without_a_promise_come_last_and_are_counted() -> None:
    made = report([0] * 60 + [20], [0] * 60 + [10])
    assert by_need(made)[0] == "g60"
    assert "51 more groups not shown: 51 no promise" in str(made)


def test_a_near_miss_does_not_read_as_reached() -> None:
    assert "  99%" in str(report([9999], [10_000]))


def test_labels_are_text_and_not_markup() -> None:
    assert "[red]x[/red]" in str(report([1], [1], labels=["[red]x[/red]"]))


def test_the_neediest_come_first() -> None:
    made = report([5, 30, 8, 20, 2], [10, 10, 10, 20, 10], prices=[0, 0, -1.0, 0, 0], requests=5)
    # g4 is behind; of those on track the subsidised g2 comes first; of those kept the tighter one.
    assert by_need(made) == ["g4", "g2", "g0", "g3", "g1"]


def test_with_many_groups_the_rest_is_counted() -> None:
    made = report([20] * 58 + [0, 1, 2], [10] * 61)
    text = str(made)
    assert [f"g{i} " in text for i in (58, 59, 60)] == [True, True, True]
    assert "51 more groups not shown: 51 kept" in text
    assert sum(line.endswith(("kept", "missed")) and "g" in line.split()[0] for line in text.splitlines()) == 10


def test_all_of_forty_groups_are_shown() -> None:
    text = str(report([20] * 40, [10] * 40))
    assert all(f" g{i} " in text for i in range(40))
    assert "not shown" not in text


def test_caps_alone_are_not_called_floors() -> None:
    catalog = fs.Catalog(np.random.default_rng(0).normal(size=(40, 4)), ["toys", "books"] * 20)
    retriever = fs.FairRetriever(catalog, k=4, horizon=30, promises=[fs.Promise({"group": "toys"}, at_most=0.4)])
    retriever.retrieve(np.ones((10, 4)))
    assert str(retriever.report()).endswith("No promise is broken so far; 20 requests to come.")


def test_a_cost_that_is_rounding_is_nothing() -> None:
    assert "cost 0% of relevance" in str(report([20], [20], relevance=90.0, cost=1e-13))
