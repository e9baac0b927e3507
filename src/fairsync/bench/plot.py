"""Plot of the scaling benchmark: a column for each scaled variable, and rows for time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullLocator

from fairsync.report.plot import COLOURS, GREY, SUBSIDY, label_log_ticks, tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fairsync.bench.run import Measurement

# Markers distinguish lines that overlap or are printed without colour.
_STYLES = {
    "exact": (COLOURS["kept"], "o"),
    "ivf": (COLOURS["missed"], "D"),
    "hnsw": (SUBSIDY, "^"),
    "one-hot": (GREY, "s"),
    "pgvector": ("tab:blue", "v"),
    "pgvector-hnsw": ("tab:cyan", "<"),
    "qdrant": ("tab:purple", ">"),
    "qdrant-hnsw": ("tab:pink", "P"),
    "milvus": ("tab:olive", "X"),
}
_ROWS = (
    ("ms_batch", 1.0, "ms per request, 64 at a time"),
    ("ms_single", 1.0, "ms per request, alone"),
    ("memory_bytes", 1e-6, "MB of embeddings and index"),
)


def plot_growth(figures: Sequence[Measurement]) -> Picture:
    """Draw all series on logarithmic axes. Linear growth is parallel to the dotted line."""
    things = list(dict.fromkeys(one.growing for one in figures))
    picture = Picture(figsize=(max(3.0 * len(things) + 0.8, 4.5), 8.4), layout="constrained", dpi=150)
    panels = picture.subplots(len(_ROWS), len(things), squeeze=False, sharey="row", sharex="col")
    for column, thing in enumerate(things):
        series = [one for one in figures if one.growing == thing]
        for row, (name, unit, title) in enumerate(_ROWS):
            axes = panels[row][column]
            _draw(axes, thing, series, name, unit)
            if column == 0:
                axes.set_ylabel(title)
        panels[0][column].set_title(thing, loc="left", fontsize=11, weight="bold")
        _mark_values(panels[-1][column], sorted({getattr(one.point, thing) for one in series}))
    for row in panels:  # after all lines are drawn, because the limits of a row depend on them
        _draw_proportion(row[0], things[0], figures)
    handles = {
        text: handle for axes in panels.flat for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = min(len(handles), 3 * len(things))  # more would not fit above a single panel
    picture.legend(handles.values(), handles, loc="outside upper center", ncols=columns, frameon=False)
    return picture


def _draw(axes: Axes, thing: str, series: Sequence[Measurement], name: str, unit: float) -> None:
    """Draw one line for each index."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for index, (colour, marker) in _STYLES.items():
        known = [(getattr(one.point, thing), getattr(one, name)) for one in series if one.point.index == index]
        drawn = [(x, unit * y) for x, y in known if y is not None]
        if drawn:
            x, y = zip(*drawn, strict=True)
            axes.plot(x, y, color=colour, marker=marker, markersize=5, linewidth=1.6, label=index)
    tidy(axes)
    label_log_ticks(axes.yaxis)


def _mark_values(axes: Axes, values: Sequence[int]) -> None:
    """Label the measured values only."""
    axes.set_xticks(values, [_short(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())


def _draw_proportion(axes: Axes, thing: str, figures: Sequence[Measurement]) -> None:
    """Draw linear growth as a dotted line from the corner of a panel."""
    values = [getattr(one.point, thing) for one in figures if one.growing == thing]
    least, most = min(values), max(values)
    low, high = axes.get_ylim()
    y = [low, low * most / least]
    axes.plot([least, most], y, color="black", linewidth=0.8, linestyle=":", label="in proportion", zorder=1)
    axes.set_ylim(low, high)


def _short(value: int) -> str:
    """Return 5,000,000 as 5M."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if value >= size and value % (size // 10) == 0:
            return f"{value / size:g}{letter}"
    return f"{value:,}"
