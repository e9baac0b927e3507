"""Plots of reports show their numbers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.promises import Promise
from fairsync.report.plot import COLOURS, label_log_ticks, plot_change, plot_report
from fairsync.retriever import FairRetriever
from report.made import bars, best, report


def test_the_plot_shows_these_numbers() -> None:
    made = report([20, 8, 1200], [20, 30, 40], prices=[0.0, -0.125, math.inf], requests=5)
    figure = made.plot()
    top, bottom = figure.axes
    assert [bar.get_height() for bar in bars(top)] == [1200, 20, 8]  # the most exposed first
    assert [to_hex(bar.get_facecolor()) for bar in bars(top)] == [
        COLOURS["kept"].lower(),
        COLOURS["kept"].lower(),
        COLOURS["behind"].lower(),
    ]
    [marks] = [drawn for drawn in top.collections if isinstance(drawn, LineCollection)]
    assert [segment[0][1] for segment in marks.get_segments()] == [40, 20, 30]
    assert top.get_yscale() == "symlog"
    assert [bar.get_height() for bar in bars(bottom)] == [0.0, 0.0, -0.125]
    assert [text.get_text() for text in bottom.get_xticklabels()] == ["g2", "g0", "g1"]
    assert "masked" in [text.get_text() for text in bottom.get_legend().get_texts()]  # type: ignore[union-attr]


def test_after_the_horizon_the_plot_shows_mean_subsidies_and_costs() -> None:
    made = report([40, 30, 20], [20, 30, 0], subsidies=[0.0, 15.0, 0.0], given_up=[0.0, 2.5, 0.0])
    top, middle, bottom = made.plot().axes
    assert [to_hex(bar.get_facecolor()) for bar in bars(top)][2] == COLOURS["no promise"].lower()
    assert "no promise" in [text.get_text() for text in top.get_legend().get_texts()]  # type: ignore[union-attr]
    assert [bar.get_height() for bar in bars(middle)] == [0.0, -0.5, 0.0]
    assert middle.get_ylabel() == "mean price"
    assert not [text for text in middle.texts if "no group has a price" in text.get_text()]
    assert [bar.get_height() for bar in bars(bottom)] == [0.0, 2.5, 0.0]


def test_after_the_horizon_the_plot_shows_mean_charges_of_caps() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(40, 4)) + np.repeat([[1.0], [0.0]], 20, axis=0), ["red"] * 20 + ["blue"] * 20)
    promises = [Promise({"group": "red"}, at_most=80), Promise({"group": "blue"}, at_least=10)]
    retriever = FairRetriever(catalog, k=2, promises=promises, horizon=100, batch_size=5)
    retriever.retrieve(rng.normal(size=(100, 4)) + 1.0)
    report = retriever.report()
    assert report.mean_subsidies is not None
    charge = next(-mean for name, mean in report.mean_subsidies.items() if "red" in str(name))
    assert charge > 0
    heights = [bar.get_height() for bar in bars(plot_report(report).axes[1])]
    assert charge in heights


@pytest.mark.parametrize("groups", [1, 8, 60])
def test_nothing_is_cut_off(groups: int) -> None:
    least = best(relevance=99.5, floors={f"g{i}": 100_000 for i in range(groups)}, requests=123_456)
    long = report(
        [123_456] * groups, [100_000] * groups, requests=123_456, horizon=123_456, relevance=99.0, cost=1.0,
        forced=123_456, hindsight=least,
    )  # fmt: skip
    for figure in (long.plot(), plot_change(long, long)):
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
        for axes in figure.axes:
            for text in (axes.title, axes._left_title, *axes.texts):  # type: ignore[attr-defined]
                box = text.get_window_extent()
                assert box.x1 <= figure.bbox.width
                assert box.y1 <= figure.bbox.height


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    for high, expected in ((0.9, {"0.2", "0.5"}), (80.0, {"1", "10", "50"}), (1e6, {"1", "100", "10,000"})):
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1, 2], [0.15, high])
        axes.set_yscale("log")
        label_log_ticks(axes.yaxis)
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
        texts = {text.get_text() for text in [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]}
        assert expected <= texts
        assert not any("×" in text or "$" in text for text in texts)


def test_a_narrow_range_is_drawn_to_scale() -> None:
    assert report([20, 19], [20, 20]).plot().axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("groups", [1, 2, 65, 300])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plots_of_any_size_are_saved(groups: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"plot{suffix}"
    report(list(range(groups)), [5] * groups).plot(path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_a_plot_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'plot\.xyz' has none of these"):
        report([1], [1]).plot(tmp_path / "plot.xyz")


def test_before_and_after() -> None:
    figure = plot_change(report([0, 50, 7], [20, 20, 20]), report([20, 30, 21], [20, 20, 20]))
    [axes] = figure.axes
    points = [
        np.asarray(drawn.get_offsets()).tolist() for drawn in axes.collections if isinstance(drawn, PathCollection)
    ]
    assert points == [[[0, 0], [1, 7], [2, 50]], [[0, 20], [1, 21], [2, 30]]]  # the least exposed before first
    assert axes.get_title(loc="left") == "1 of 3 promises kept before, 3 after"


def test_caps_are_marked_in_both_plots() -> None:
    before = report([0, 90], [20, 0], labels=["a", "b"])
    after = replace(report([20, 40], [20, 0], labels=["a", "b"]), caps={"b": 40})
    for figure, place in ((plot_change(before, after), 1), (plot_report(after), 0)):
        axes = figure.axes[0]
        marks = [
            segment
            for drawn in axes.collections
            if isinstance(drawn, LineCollection)
            for segment in drawn.get_segments()
        ]
        assert [[place - 0.5, 40.0], [place + 0.5, 40.0]] in [segment.tolist() for segment in marks]
        assert "cap" in [text.get_text() for text in axes.get_legend().get_texts()]  # type: ignore[union-attr]


def test_labels_are_drawn_as_they_are(tmp_path: Path) -> None:
    made = report([20, 3], [20, 20], labels=["$x_$^", "$5 to $10"])
    made.plot(tmp_path / "dollars.png")
    assert (tmp_path / "dollars.png").stat().st_size
