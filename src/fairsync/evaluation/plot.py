"""Plot of the exposures of groups, or of promises, under several policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairsync.report.plot import (
    COLOURS,
    GREY,
    cap_handles,
    floor_handle,
    mark_caps,
    mark_floors,
    name_groups,
    scale_counts,
    tidy,
)
from fairsync.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairsync.catalog.groups import Label
    from fairsync.evaluation.evaluate import Evaluation, PolicyResult

_STYLES = (GREY, COLOURS["kept"], COLOURS["missed"], COLOURS["behind"], "#009E73", "#CC79A7", COLOURS["on track"])
_NAMED = 25  # up to this number of groups, each has bars and a name


def plot_exposures(found: Evaluation) -> Figure:
    """Plot the exposures of all groups, or of all promises if there are any, with a panel for each k.

    Up to 25 have a bar for each policy, with their bounds. More are drawn in ascending order, with a line for each
    policy: each has its own order of groups, so that lines show the distribution. A floor that all share is drawn.
    """
    ks = list(dict.fromkeys(one.k for one in found.results))
    noun = "promise" if found.results[0].promises else "group"
    number = len(found.results[0].promises or found.floors)
    wide = 4.6 if number > _NAMED else 2.5 + 0.3 * number
    figure = Figure(figsize=(max(6.0, wide * len(ks)), 4.2), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(ks), sharey=True, squeeze=False)[0]
    drawn: list[int] = []
    for axes, k in zip(panels, ks, strict=True):
        results = [one for one in found.results if one.k == k]
        if number <= _NAMED:
            drawn += _draw_bars(axes, results, found, noun)
        else:
            drawn += _draw_lines(axes, results, found, noun)
        axes.set_title(f"K = {k}", loc="left", fontsize=11, weight="bold")
        tidy(axes)
    scale_counts(panels[0], np.array(drawn))  # and with it the others
    panels[0].set_ylabel(f"exposures in {count(found.requests, 'request')}")
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=min(len(texts), 6), frameon=False, fontsize=9)
    return figure


def _draw_bars(axes: Axes, results: list[PolicyResult], found: Evaluation, noun: str) -> list[int]:
    """Draw a bar for each policy, with the bounds across them. Returns what was drawn."""
    promises = results[0].promises
    labels: list[Label] = [one.name for one in promises] if promises else list(found.floors)
    x, width = np.arange(len(labels)), 0.8 / len(results)
    floors = np.array([one.at_least or 0 for one in promises] or list(found.floors.values()), dtype=np.int64)
    drawn: list[int] = floors.tolist()
    for place, one in enumerate(results):
        heights = _counts(one)
        left = x + (place - (len(results) - 1) / 2) * width
        axes.bar(left, heights, width=0.92 * width, color=_STYLES[place % len(_STYLES)], label=one.policy)
        drawn += heights
    mark_floors(axes, x, floors)
    if floors.any():
        axes.add_line(floor_handle())
    caps = mark_caps(axes, labels, {one.name: one.at_most for one in promises if one.at_most is not None})
    for handle in cap_handles(caps):
        axes.add_line(handle)
    drawn += caps.tolist()
    name_groups(axes, labels, noun)
    return drawn


def _draw_lines(axes: Axes, results: list[PolicyResult], found: Evaluation, noun: str) -> list[int]:
    """Draw the exposures in ascending order, with a line for each policy. Returns what was drawn."""
    drawn: list[int] = []
    for place, one in enumerate(results):
        counts = sorted(_counts(one))
        # Thinner over thicker, so that lines which coincide can all be seen.
        width, colour = 1.5 + min(1.2, 4 / len(results)) * (len(results) - 1 - place), _STYLES[place % len(_STYLES)]
        axes.plot(np.arange(1, len(counts) + 1), counts, color=colour, linewidth=width, label=one.policy)
        drawn += counts
    floors = {one.at_least or 0 for one in results[0].promises} or set(found.floors.values())
    if len(floors) == 1 and floors != {0}:
        [floor] = floors
        axes.axhline(floor, color="black", linewidth=1.2, linestyle=":", label=f"floor {floor:,}")
        drawn.append(floor)
    number = len(drawn) // len(results)
    axes.set_xlim(1, number)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel(f"{count(number, noun)}, the least shown first")
    return drawn


def _counts(one: PolicyResult) -> list[int]:
    return [promise.exposures for promise in one.promises] or list(one.exposures.values())
