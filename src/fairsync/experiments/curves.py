"""Plots of accuracy by a variable, with a panel for each K and measure and a line for each method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from fairsync.experiments.colours import COLOURS, MARKERS
from fairsync.report.plot import tidy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from fairsync.experiments.experiment import SeedMean

NAMES = {"recall": "Recall", "ndcg": "NDCG", "hit_rate": "Hit rate", "esp": "ESP"}


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
            axes.set_xscale("log", base=2)
            axes.set_xticks(places[1 - len(places) % 2 :: 2])  # every other, with the last
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.tick_params(labelsize=8)
            axes.set_ylabel(f"{NAMES[measure]}@{k}, %")
            if measure == "esp":
                axes.set_ylim(0, 105)
                axes.set_ylabel(f"ESP, %, K = {k}")
            tidy(axes)
    for axes in panels[-1]:
        axes.set_xlabel(x_label)
    missed = Line2D([], [], linestyle="", marker="o", color="black", markerfacecolor="white", label="some floor missed")
    handles = [*(curve.handle() for curve in curves), missed]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9, handlelength=3.2
    )
    return figure
