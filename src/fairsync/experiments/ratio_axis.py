"""An axis of multiples, such as cost in multiples of the least possible: logarithmic, with numbers that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

if TYPE_CHECKING:
    from typing import Literal

    from matplotlib.axes import Axes


def scale_as_ratio(axes: Axes, which: Literal["x", "y"]) -> None:
    """Scale an axis in 1, 2, 5, 10, …, with a line at what cannot be beaten."""
    axis, scale, line = {
        "x": (axes.xaxis, axes.set_xscale, axes.axvline),
        "y": (axes.yaxis, axes.set_yscale, axes.axhline),
    }[which]
    line(1, color="black", linestyle=":", linewidth=1.2)  # first: a log scale needs something positive
    scale("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
