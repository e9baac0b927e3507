"""Plot of a cost curve: what a promise must cost, at several levels of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fairsync.report.plot import COLOURS, tidy
from fairsync.text import count, percent

if TYPE_CHECKING:
    from fairsync.report.cost_curve import CostCurve


def plot_cost_curve(curve: CostCurve) -> Figure:
    """Plot the cost, as a share of the relevance without promises, against the floor or the cap.

    The line is the least possible cost, the marks are feasible plans. The two coincide unless the bounds have a gap.
    """
    scale = abs(curve.relevance)
    least, feasible = (np.array(costs) / (scale or 1.0) for costs in (curve.costs, curve.feasible_costs))
    figure = Figure(figsize=(7.0, 4.4), layout="constrained", dpi=150)
    axes = figure.subplots()
    axes.plot(curve.levels, least, color=COLOURS["kept"], linewidth=2, label="least possible cost")
    axes.fill_between(curve.levels, least, feasible, color=COLOURS["on track"], alpha=0.4, linewidth=0)
    axes.plot(curve.levels, feasible, "o", color=COLOURS["missed"], markersize=5, label="feasible plan")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if scale:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
    bound = "floor" if curve.bound == "at_least" else "cap"
    axes.set_xlabel(f"{bound}, exposures")
    axes.set_ylabel("cost, share of the relevance" if scale else "cost")
    fixed = len(curve.floors | curve.caps)
    others = f" beside {count(fixed, 'other promise')}" if fixed else ""
    # Labels may contain dollar signs, which matplotlib would parse as mathematics.
    title = f"Cost of a {bound} for {curve.promise}{others}, over {count(curve.requests, 'request')}"
    axes.set_title(title, loc="left", fontsize=11, parse_math=False)
    axes.legend(frameon=False, loc="upper left")
    tidy(axes)
    return figure
