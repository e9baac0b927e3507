"""Plot of the distribution of exposure over groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from fairsync.report.plot import COLOURS, GREY, scale_counts, tidy
from fairsync.report.table import count

if TYPE_CHECKING:
    from fairsync.evaluation.evaluate import Evaluation

_STYLES = (GREY, COLOURS["kept"], COLOURS["missed"], COLOURS["behind"], "#009E73", "#CC79A7", COLOURS["on track"])


def plot_exposures(found: Evaluation) -> Figure:
    """Plot the exposures of all groups in ascending order, with a panel for each k and a line for each policy.

    Each policy has its own order of groups, so the lines show the distribution; the exposures of a single group are in
    the table of a report. A floor that all groups share is drawn.
    """
    ks = list(dict.fromkeys(one.k for one in found.results))
    policies = list(dict.fromkeys(one.policy for one in found.results))
    figure = Figure(figsize=(max(6.0, 4.6 * len(ks)), 4.2), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(ks), sharey=True, squeeze=False)[0]
    groups = np.arange(1, len(found.floors) + 1)
    floors = set(found.floors.values())
    drawn = [list(one.exposures.values()) for one in found.results]
    for axes, k in zip(panels, ks, strict=True):
        for one in (one for one in found.results if one.k == k):
            colour = _STYLES[policies.index(one.policy) % len(_STYLES)]
            axes.plot(groups, sorted(one.exposures.values()), color=colour, linewidth=2, label=one.policy)
        if len(floors) == 1 and floors != {0}:
            [floor] = floors
            axes.axhline(floor, color="black", linewidth=1.2, linestyle=":", label=f"floor {floor:,}")
            drawn.append([floor])
        axes.set_title(f"K = {k}", loc="left", fontsize=11, weight="bold")
        axes.set_xlim(1, max(len(groups), 2))
        axes.set_xlabel(f"{count(len(groups), 'group')}, the least shown first")
        tidy(axes)
    scale_counts(panels[0], np.concatenate(drawn))  # and with it the others
    panels[0].set_ylabel(f"exposures in {count(found.requests, 'request')}")
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=min(len(texts), 5), frameon=False, fontsize=9)
    return figure
