"""What figures of experiments share: colours and marks of methods, axes, and curves by a variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from fairsync.report.plot import GREY, label_log_ticks, tidy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from fairsync.experiments.experiment import SeedMean

# Colours of Okabe and Ito, which colour-blind readers can distinguish. Our methods have the strongest ones; retrieval
# without floors is grey.
COLOURS: dict[str, str] = {
    "none": GREY,
    "regularized-fair": "#E69F00",
    "ipw": "#CC79A7",
    "k-neighbor": "#56B4E9",
    "uncalibrated": "#009E73",
    "fairsync": "#0072B2",
    "guaranteed": "#D55E00",
}
# Where points lie on top of each other, or colours are not printed, the shape tells.
MARKERS: dict[str, str] = {
    "none": "x",
    "regularized-fair": "v",
    "ipw": "^",
    "k-neighbor": "s",
    "uncalibrated": "P",
    "fairsync": "D",
    "guaranteed": "o",
}
_NAMES = {"recall": "Recall", "ndcg": "NDCG", "hit_rate": "Hit rate", "esp": "ESP"}


def missed_handle() -> Line2D:
    """Return the legend entry of hollow marks."""
    return Line2D([], [], linestyle="", marker="o", color="black", markerfacecolor="white", label="some floor missed")


def scale_as_ratio(axes: Axes, which: Literal["x", "y"]) -> None:
    """Scale an axis in 1, 2, 5, 10, …, with a line at the optimum of 1."""
    axis, scale, line = {
        "x": (axes.xaxis, axes.set_xscale, axes.axvline),
        "y": (axes.yaxis, axes.set_yscale, axes.axhline),
    }[which]
    line(1, color="black", linestyle=":", linewidth=1.2)  # drawn first, because a log scale needs a positive value
    scale("log")
    label_log_ticks(axis)


def scale_by_doubling(axes: Axes, ticks: Sequence[int]) -> None:
    """Scale the x axis in powers of 2, with plain numbers at some places."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


@dataclass(frozen=True)
class Curve:
    """A line in all panels.

    Attributes
    ----------
    label : str
        Label in the legend.
    method : str
        Method, which decides colour and marker. ``none`` is the reference and has no markers.
    points : mapping
        {K: {x: means over seeds}}.
    dashed : bool
        Whether the line is dashed, for methods with two lines.
    """

    label: str
    method: str
    points: Mapping[int, Mapping[int, SeedMean]]
    dashed: bool = False

    @property
    def _style(self) -> dict[str, object]:
        plain = self.method == "none"
        return {
            "color": COLOURS[self.method],
            "linestyle": "--" if self.dashed or plain else "-",
            "linewidth": 1.4 if plain else 1.8,
            "marker": "" if plain else MARKERS[self.method],
            "markersize": 5.5,
        }

    def draw(self, axes: Axes, k: int, measure: str) -> None:
        """Draw the line in one panel. Markers are hollow where floors were missed."""
        points = sorted(self.points[k].items())
        ats, values = [at for at, _ in points], [100 * getattr(point, measure) for _, point in points]
        axes.plot(ats, values, **self._style, markerfacecolor="white")  # type: ignore[arg-type]
        met = [(at, value) for at, value, (_, point) in zip(ats, values, points, strict=True) if point.esp == 1]
        if met and self.method != "none":
            axes.plot(*zip(*met, strict=True), MARKERS[self.method], color=COLOURS[self.method], markersize=5.5)

    def handle(self) -> Line2D:
        """Return the legend entry of the line."""
        return Line2D([], [], label=self.label, **self._style)  # type: ignore[arg-type]


def draw_curves(curves: Sequence[Curve], measures: Sequence[str], x_label: str) -> Figure:
    """Plot curves with a row for each K and a column for each measure."""
    ks = list(curves[0].points)
    places = sorted({at for curve in curves for points in curve.points.values() for at in points})
    size = (3.1 * len(measures), 2.7 * len(ks) + 0.6)
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    panels = figure.subplots(len(ks), len(measures), sharex=True, squeeze=False)
    for k, row in zip(ks, panels, strict=True):
        for measure, axes in zip(measures, row, strict=True):
            for curve in curves:
                curve.draw(axes, k, measure)
            scale_by_doubling(axes, places[1 - len(places) % 2 :: 2])  # every other, with the last
            axes.tick_params(labelsize=8)
            axes.set_ylabel(f"{_NAMES[measure]}@{k}, %")
            if measure == "esp":
                axes.set_ylim(0, 105)
                axes.set_ylabel(f"ESP, %, K = {k}")
            tidy(axes)
    for axes in panels[-1]:
        axes.set_xlabel(x_label)
    handles = [*(curve.handle() for curve in curves), missed_handle()]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9, handlelength=3.2
    )
    return figure
