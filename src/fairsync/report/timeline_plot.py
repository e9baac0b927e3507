"""A picture of how exposures grow while requests come."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.dates import AutoDateLocator, num2date
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fairsync.report.plot import COLOURS, GREY, tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label

_STYLES = (GREY, COLOURS["behind"], COLOURS["on track"], COLOURS["kept"])
_DAY, _HOUR = 86_400, 3_600


def plot_timeline(
    times: NDArray[np.int64],
    seen: NDArray[np.int64],
    courses: dict[str, NDArray[np.int64]],
    names: Sequence[Label],
    floors: Sequence[int],
) -> Figure:
    """Return exposures over time, one small panel for each group, and the traffic below.

    Parameters
    ----------
    times
        (T,) unix seconds at which the requests of the horizon came, in order.
    seen
        (n,) how many of them had come each time that exposures were read; 0 first, T last.
    courses
        By policy: (n, groups) exposures read.
    names, floors
        Of the groups.
    """
    columns = min(len(names), 3)
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3.7 * columns + 0.6, 2.6 * rows + 2.3), layout="constrained", dpi=150)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[1.0] * rows + [0.6])
    when = _dates(times[np.maximum(seen - 1, 0)])
    panels = [figure.add_subplot(grid[divmod(place, columns)]) for place in range(len(names))]
    for place, axes in enumerate(panels):
        even = floors[place] * seen / seen[-1]
        axes.plot(when, even, color="black", linestyle=":", linewidth=1, label="pace of the requests")
        axes.axhline(floors[place], color="black", linewidth=1, label="floor")
        for (policy, course), colour in zip(courses.items(), _STYLES, strict=False):
            axes.plot(when, course[:, place], color=colour, linewidth=1.8, label=policy)
        # A label is text, also where it holds the dollar signs that matplotlib takes for mathematics.
        axes.set_title(str(names[place]), loc="left", fontsize=10, parse_math=False)
        axes.set_ylim(bottom=-0.02 * max(axes.get_ylim()[1], 1.0))
        _scale(axes, ticks=4)
        if place + columns < len(names):  # the dates are below
            axes.tick_params(labelbottom=False)
        if place % columns == 0:
            axes.set_ylabel("exposures")
    _draw_traffic(figure.add_subplot(grid[rows, :]), times)
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, texts, loc="outside upper center", ncols=min(len(texts), 3 * columns), frameon=False, fontsize=9
    )
    return figure


def _draw_traffic(axes: Axes, times: NDArray[np.int64]) -> None:
    """Draw how many requests came each day, or each hour of a few days."""
    unit = _DAY if times[-1] - times[0] > 4 * _DAY else _HOUR
    slots = times // unit - times[0] // unit
    counts = np.bincount(slots)
    starts = (np.arange(len(counts)) + times[0] // unit) * unit
    axes.bar(
        _dates(starts),
        counts,
        width=np.timedelta64(unit, "s"),
        align="edge",
        color="#C8D3DC",
        edgecolor="white",
        linewidth=0.4,
    )
    axes.set_ylabel(f"requests\na{' day' if unit == _DAY else 'n hour'}")
    years = [str(year) for year in np.unique(_dates(times[[0, -1]]).astype("datetime64[Y]"))]
    axes.set_xlabel("–".join(years))
    _scale(axes, ticks=3)


def _scale(axes: Axes, ticks: int) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(_date))
    axes.yaxis.set_major_locator(MaxNLocator(ticks, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    tidy(axes)


def _date(place: float, _: int | None) -> str:
    """Name a moment on an axis: a day, or an hour of one."""
    when = num2date(place)  # type: ignore[no-untyped-call]
    return f"{when:%H:%M}" if when.hour or when.minute else f"{when.day} {when:%b}"


def _dates(times: NDArray[np.int64]) -> NDArray[np.datetime64]:
    return times.astype("datetime64[s]")
