"""A logarithmic axis for ratios, such as cost relative to the least possible, with plain numbers as labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.report.plot import label_log_ticks

if TYPE_CHECKING:
    from typing import Literal

    from matplotlib.axes import Axes


def scale_as_ratio(axes: Axes, which: Literal["x", "y"]) -> None:
    """Scale an axis in 1, 2, 5, 10, …, with a line at the optimum of 1."""
    axis, scale, line = {
        "x": (axes.xaxis, axes.set_xscale, axes.axvline),
        "y": (axes.yaxis, axes.set_yscale, axes.axhline),
    }[which]
    line(1, color="black", linestyle=":", linewidth=1.2)  # drawn first, because a log scale needs a positive value
    scale("log")
    label_log_ticks(axis)
