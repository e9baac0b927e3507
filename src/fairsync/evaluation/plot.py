"""Plot of the distribution of exposure over groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairsync.report.plot import COLOURS, GREY, mark_floors, name_groups, scale_counts, tidy
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from fairsync.catalog.groups import Label
    from fairsync.evaluation.evaluate import Evaluation, PolicyResult

_STYLES = (GREY, COLOURS["kept"], COLOURS["missed"], COLOURS["behind"], "#009E73", "#CC79A7", COLOURS["on track"])
_NAMED = 20  # groups that have room for a bar for each policy


def plot_exposures(found: Evaluation) -> Figure:
    """Plot the exposures of all groups under each policy, with a panel for each k.

    A few groups have bars side by side, with their names and floors, in the order of the first policy. Many groups are
    drawn as a line for each policy, in ascending order of exposures: each policy has its own order, so that the lines
    show the distribution. The exposures of a single group are in the table of a report. A floor that all groups share
    is drawn.
    """
    ks = list(dict.fromkeys(one.k for one in found.results))
    is_named = len(found.floors) <= _NAMED
    width = max(4.6, 1.2 + 0.28 * len(found.floors) * len({one.policy for one in found.results})) if is_named else 4.6
    figure = Figure(figsize=(max(6.0, width * len(ks)), 4.2), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(ks), sharey=True, squeeze=False)[0]
    for axes, k in zip(panels, ks, strict=True):
        draw = _draw_bars if is_named else _draw_lines
        draw(axes, [one for one in found.results if one.k == k], found.floors)
        axes.set_title(f"K = {k}", loc="left", fontsize=11, weight="bold")
        tidy(axes)
    drawn = [list(one.exposures.values()) for one in found.results]
    scale_counts(panels[0], np.concatenate([*drawn, list(found.floors.values())]))  # and with it the others
    panels[0].set_ylabel(f"exposures in {count(found.requests, 'request')}")
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=min(len(texts), 5), frameon=False, fontsize=9)
    return figure


def _draw_bars(axes: Axes, results: Sequence[PolicyResult], floors: Mapping[Label, int]) -> None:
    labels = sorted(floors, key=lambda label: results[0].exposures[label])
    x, width = np.arange(len(labels)), 0.8 / len(results)
    for place, one in enumerate(results):
        at = x + (place - (len(results) - 1) / 2) * width
        exposures = [one.exposures[label] for label in labels]
        axes.bar(at, exposures, width=0.9 * width, color=_STYLES[place % len(_STYLES)], label=one.policy)
    promised = np.array([floors[label] for label in labels])
    if promised.any():
        mark_floors(axes, x, promised)
        axes.plot([], [], color="black", linewidth=1.4, label="floor")
    name_groups(axes, labels)


def _draw_lines(axes: Axes, results: Sequence[PolicyResult], floors: Mapping[Label, int]) -> None:
    groups, levels = np.arange(1, len(floors) + 1), set(floors.values())
    for place, one in enumerate(results):
        # Thinner over thicker, so that lines which coincide can all be seen.
        width = 1.5 + min(1.2, 4.0 / len(results)) * (len(results) - 1 - place)
        colour = _STYLES[place % len(_STYLES)]
        axes.plot(groups, sorted(one.exposures.values()), color=colour, linewidth=width, label=one.policy)
    if len(levels) == 1 and levels != {0}:
        [floor] = levels
        axes.axhline(floor, color="black", linewidth=1.2, linestyle=":", label=f"floor {floor:,}")
    axes.set_xlim(1, len(groups))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.set_xlabel(f"{count(len(groups), 'group')}, the least shown first")
