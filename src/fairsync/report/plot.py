"""Plots of reports, in the colours of Okabe and Ito, which colour-blind readers can distinguish."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fairsync.atomic_write import explain_write_errors
from fairsync.errors import InvalidInputError
from fairsync.report.table import summary
from fairsync.text import count, percent, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.report.report import Report

COLOURS = {
    "kept": "#0072B2", "on track": "#56B4E9", "behind": "#E69F00", "missed": "#D55E00", "gave way": "#CC79A7",
    "exceeded": "#000000", "no promise": "#C4C4C4",
}  # fmt: skip
SUBSIDY, PRICE, GREY = "#009E73", "#CC79A7", "#8A8A8A"
_NAMED = 45  # more labels than this cannot be read next to each other
_WIDE = 50  # from this ratio of largest to smallest on, small bars would vanish without a log scale
_SUFFIXES = (".png", ".svg", ".pdf")
_FACT_SIZE = 9  # points


def plot_report(report: Report) -> Figure:
    """Plot exposures and floors, prices, and what each promise has cost, in panels; the most exposed group first.

    After the horizon, and if no group has a price now, the mean subsidies and charges of the horizon take the place of
    the prices.
    """
    labels = sorted(report.floors, key=lambda label: -report.exposures[label])
    prices, price_name = _shown_prices(report, labels)
    costs = np.array([(report.costs or {}).get(label, 0.0) for label in labels])
    priced = bool(prices.any())
    heights = [2.4 if priced else 9, 1] + ([1] if costs.any() else [])
    size = (_width(len(labels)), (6.2 if priced else 4.8) + (1.6 if costs.any() else 0.0))
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    top, bottom, *lowest = panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    _draw_exposures(top, report, labels)
    what = "Exposures and floors" if report.caps is None else "Exposures and promises"
    _title(top, f"{what} under the policy '{report.policy}'", summary(report))
    _draw_prices(bottom, prices, price_name, report.noun)
    for axes in lowest:
        axes.bar(np.arange(len(labels)), costs, width=_bar_width(len(labels)), color=GREY)
        axes.set_ylabel("cost")
    name_groups(panels[-1], labels, report.noun)
    for axes in panels:
        tidy(axes)
    return figure


def _shown_prices(report: Report, labels: Sequence[Label]) -> tuple[NDArray[np.float64], str]:
    """Return the prices that are shown, and what they are called."""
    prices = np.array([report.prices[label] for label in labels])
    means = -np.array([(report.mean_subsidies or {}).get(label, 0.0) for label in labels])
    if means.any() and (report.requests >= report.horizon or not prices.any()):
        return means, "mean price"
    return prices, "price now"


def _draw_exposures(axes: Axes, report: Report, labels: Sequence[Label]) -> None:
    """Draw exposures as bars in the colours of their status, with floors and caps across them."""
    x = np.arange(len(labels))
    exposures = np.array([report.exposures[label] for label in labels])
    floors = np.array([report.floors[label] for label in labels])
    outlooks = report.outlooks or {}
    colours = [COLOURS[report.status[label]] for label in labels]
    bars = axes.bar(x, exposures, width=_bar_width(len(labels)), color=colours)
    nothing = exposures == 0  # a bar of height 0 is invisible
    axes.scatter(x[nothing], exposures[nothing], s=9, color=[c for c, no in zip(colours, nothing, strict=True) if no])
    mark_floors(axes, x, floors)
    ceilings = mark_caps(axes, labels, report.caps)
    axes.set_ylabel("exposures")
    scale_counts(axes, np.concatenate([exposures, floors, ceilings]))
    present = [status for status in COLOURS if status in report.status.values()]
    handles: list[Artist] = [Patch(color=COLOURS[status], label=status) for status in present]
    ends = ("will miss", "missed")
    lost = [i for i, label in enumerate(labels) if label in outlooks and outlooks[label].outlook in ends]
    for i in lost:
        bars[i].set_hatch("////")
        bars[i].set_edgecolor("white")
    if lost:
        shares = [outlooks[labels[i]].share for i in lost]
        word = "missed" if report.is_over else "will miss"
        few = f"{word}: {'at most ' if len(lost) > 1 else ''}{percent(max(shares))} of requests could show it"
        handles.append(Patch(facecolor=GREY, edgecolor="white", hatch="////", label=few))
    axes.legend(
        handles=[*handles, *cap_handles(ceilings), floor_handle()],
        frameon=False,
        ncols=7,
        loc="upper right",
        columnspacing=1.2,
    )


def _draw_prices(axes: Axes, prices: NDArray[np.float64], name: str, noun: str) -> None:
    """Draw subsidies and charges as bars, and mark groups that are masked."""
    x, masked = np.arange(len(prices)), np.isposinf(prices)
    finite = np.where(masked, 0.0, prices)
    axes.bar(x, finite, width=_bar_width(len(prices)), color=[SUBSIDY if price < 0 else PRICE for price in finite])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_ylabel(name)
    if not prices.any():
        axes.set_ylim(-1, 1)
        axes.set_yticks([0])
        axes.set_ylabel("price")
        axes.text(0.5, 0.62, f"no {noun} has a price now", transform=axes.transAxes, ha="center", color=GREY)
    if masked.any():
        axes.plot(x[masked], finite[masked], "x", color="black", label="masked")
    words = "{}" if name == "price now" else "mean {} of the horizon"
    drawn = [Patch(color=SUBSIDY, label=words.format("subsidy"))] if (finite < 0).any() else []
    drawn += [Patch(color=PRICE, label=words.format("charge"))] if (finite > 0).any() else []
    extra = [Line2D([], [], marker="x", linestyle="", color="black", label="masked")] if masked.any() else []
    if drawn or extra:
        # Above the panel, where it hides no bar.
        axes.legend(handles=[*drawn, *extra], frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 0.98))


def plot_change(before: Report, after: Report) -> Figure:
    """Plot the exposures of each group under two policies, sorted by exposures under the first."""
    labels = sorted(before.floors, key=lambda label: (before.exposures[label], after.exposures[label]))
    x = np.arange(len(labels))
    was = np.array([before.exposures[label] for label in labels])
    now = np.array([after.exposures[label] for label in labels])
    floors = np.array([after.floors[label] for label in labels])

    figure = Figure(figsize=(_width(len(labels)), 5.0), layout="constrained", dpi=150)
    axes = figure.subplots()
    size = 42.0 if len(labels) <= _NAMED else 15.0
    for raised, colour in ((now >= was, COLOURS["kept"]), (now < was, GREY)):
        axes.vlines(x[raised], was[raised], now[raised], color=colour, linewidth=1.2, alpha=0.5)
    axes.scatter(
        x, was, s=2 * size, facecolors="none", edgecolors=COLOURS["missed"], linewidths=1.3, zorder=4,
        label=f"policy '{before.policy}'",
    )  # fmt: skip
    axes.scatter(x, now, s=size, color=COLOURS["kept"], marker="D", label=f"policy '{after.policy}'", zorder=3)
    mark_floors(axes, x, floors)
    ceilings = mark_caps(axes, labels, after.caps)
    scale_counts(axes, np.concatenate([was, now, floors, ceilings]))
    axes.set_ylabel("exposures")
    handles, _ = axes.get_legend_handles_labels()
    axes.legend(handles=[*handles, *cap_handles(ceilings), floor_handle()], frameon=False, loc="upper left")
    promises = count(len(after.promised), "promise")
    sub = [f"{before.n_kept:,} of {promises} kept before, {after.n_kept:,} after"]
    _title(axes, f"What every {after.noun} gets, before and after", sub)
    name_groups(axes, labels, after.noun)
    tidy(axes)
    return figure


def save(figure: Figure, path: str | PathLike[str]) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidInputError(f"A plot is saved as {', '.join(_SUFFIXES)}; {path.name!r} has none of these suffixes.")
    with explain_write_errors(path):
        figure.savefig(path)
    return path


def mark_floors(axes: Axes, x: NDArray[np.int_], floors: NDArray[np.int64]) -> None:
    """Draw a floor as a short line across the bar of its group."""
    has = floors > 0
    axes.hlines(floors[has], x[has] - 0.5, x[has] + 0.5, color="black", linewidth=1.4, zorder=2)


def floor_handle() -> Line2D:
    """Return the legend entry of a floor."""
    return Line2D([], [], color="black", linewidth=1.4, label="floor")


def mark_caps(axes: Axes, labels: Sequence[Label], caps: Mapping[Label, int] | None) -> NDArray[np.int64]:
    """Draw a cap as a short dashed line across the bar of its promise; return the caps."""
    at = np.array([i for i, label in enumerate(labels) if label in (caps or {})], dtype=np.int64)
    ceilings = np.array([caps[labels[i]] for i in at.tolist()] if caps else [], dtype=np.int64)
    if len(at):
        axes.hlines(ceilings, at - 0.5, at + 0.5, color=PRICE, linewidth=1.4, linestyle="dashed", zorder=5)
    return ceilings


def cap_handles(ceilings: NDArray[np.int64]) -> list[Line2D]:
    """Return the legend entry of caps, if there are any."""
    return [Line2D([], [], color=PRICE, linewidth=1.4, linestyle="dashed", label="cap")] if len(ceilings) else []


def scale_counts(axes: Axes, counts: NDArray[np.int64]) -> None:
    """Scale the y axis for counts: symmetric logarithmic, which includes 0, if they differ widely."""
    largest = int(counts.max(initial=1))
    positive = counts[counts > 0]
    if len(positive) and largest >= _WIDE * int(positive.min()):
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.4)
        axes.set_ylim(0 if counts.min() > 0 else -0.25, largest * 4)
        axes.set_yticks([0, *(10**power for power in range(math.ceil(math.log10(largest)) + 1))])
    else:
        axes.set_ylim(0, max(largest, 1) * 1.2)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(_thousands())


def name_groups(axes: Axes, labels: Sequence[Label], noun: str = "group") -> None:
    """Label the groups, or promises, on the x axis if there is room, else show their number."""
    axes.set_xlim(-0.8, len(labels) - 0.2)
    if len(labels) > _NAMED:
        axes.set_xticks([])
        axes.set_xlabel(count(len(labels), noun))
        return
    names = [shortened(str(label), 18) for label in labels]
    upright = max(map(len, names)) * len(names) > 90
    # Labels may contain dollar signs, which matplotlib would parse as mathematics.
    rotation, size = (90, 8) if upright else (0, 10)
    axes.set_xticks(range(len(names)), names, parse_math=False, rotation=rotation, fontsize=size)
    axes.set_xlabel(noun)


def tidy(axes: Axes) -> None:
    """Remove spines and ticks that carry no information."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def _width(groups: int) -> float:
    return min(11.0, 8.5 + 0.05 * groups)


def _bar_width(bars: int) -> float:
    return 0.5 if bars <= 5 else 0.8 if bars <= 100 else 1.0


def _thousands() -> FuncFormatter:
    return FuncFormatter(lambda value, _: f"{value:,.0f}")


def label_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers: 1, 2, 5, 10 ..., or powers of 10 only if there are many.

    Call it after everything is drawn.
    """
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _title(axes: Axes, title: str, facts: Sequence[str]) -> None:
    """Set a title over facts, which are divided into lines that fit the width of the figure."""
    inches = axes.figure.get_window_extent().width / axes.figure.dpi
    letters = int((inches - 1.2) * 72 / (0.55 * _FACT_SIZE))  # a letter is half as wide as high
    lines = [""]
    for fact in facts:
        joined = f"{lines[-1]} · {fact}" if lines[-1] else fact
        if lines[-1] and len(joined) > letters:
            lines.append(fact)
        else:
            lines[-1] = joined
    axes.set_title("\n".join(lines), loc="left", fontsize=_FACT_SIZE, color="#555555")
    axes.annotate(
        title,
        (0, 1),
        (0, 10 + 12 * len(lines)),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=13,
        weight="bold",
    )
