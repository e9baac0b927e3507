"""Timeline plot: the exposures of groups over time, and the traffic."""

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
    exposures: dict[str, NDArray[np.int64]],
    names: Sequence[Label],
    floors: Sequence[int],
) -> Figure:
    """Plot exposures over time in one small panel for each group, and the traffic below.

    Parameters
    ----------
    times
        (T,) Unix seconds of the requests of the horizon, in order.
    seen
        (n,) Number of requests answered at each sample, from 0 to T.
    exposures
        {policy: (n, groups) exposures at each sample}.
    names
        Labels of the groups.
    floors
        Floors of the groups.
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
        for (policy, counts), colour in zip(exposures.items(), _STYLES, strict=False):
            axes.plot(when, counts[:, place], color=colour, linewidth=1.8, label=policy)
        # Labels may contain dollar signs, which matplotlib would parse as mathematics.
        axes.set_title(str(names[place]), loc="left", fontsize=10, parse_math=False)
        axes.set_ylim(bottom=-0.02 * max(axes.get_ylim()[1], 1.0))
        _scale(axes, ticks=4)
        if place + columns < len(names):  # the panel below shows the dates
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
    """Draw the requests per day, or per hour if the horizon has only a few days."""
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
    """Return the axis label of a moment: the day at midnight, else the time of day."""
    when = num2date(place)  # type: ignore[no-untyped-call]
    return f"{when:%H:%M}" if when.hour or when.minute else f"{when.day} {when:%b}"


def _dates(times: NDArray[np.int64]) -> NDArray[np.datetime64]:
    return times.astype("datetime64[s]")
