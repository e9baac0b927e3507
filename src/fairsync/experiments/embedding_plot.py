"""Plot of maps of items and users, and of the exposures at the same moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fairsync.report.plot import mark_floors, scale_counts, tidy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_COLOURS = ("#D55E00", "#E69F00", "#009E73", "#56B4E9", "#0072B2")
_LONGEST = 24


def draw_maps(found: Mapping[str, Any]) -> Figure:
    """Plot the maps in the upper row (the model's space, then the dual space at each moment) and exposures below."""
    moments, names = found["moments"], found["groups"]
    figure = Figure(figsize=(3.0 * (1 + len(moments)), 5.6), layout="constrained", dpi=150)
    maps, bars = figure.subplots(2, 1 + len(moments), height_ratios=[3, 2])
    titles = ["original space", *(f"dual space, {moment:,} request{'s' * (moment != 1)}" for moment in moments)]
    for axes, title, places in zip(maps, titles, found["maps"], strict=True):
        _map(axes, np.array(places), np.array(found["items"]))
        axes.set_title(title, loc="left", fontsize=10, weight="bold")
    x = np.arange(len(names))
    for axes, exposures, due in zip(bars[1:], found["exposures"], found["due"], strict=True):
        axes.bar(x, exposures, color=_COLOURS[: len(names)], width=0.7)
        floors = np.full(len(names), max(1, round(due)))
        mark_floors(axes, x, floors)
        scale_counts(axes, np.concatenate([exposures, floors]))
        axes.set_xticks([])
        axes.set_xlabel("group")
        tidy(axes)
    bars[1].set_ylabel("exposures so far")
    bars[0].axis("off")
    short = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in names]
    handles = [
        Line2D([], [], linestyle="", marker="o", color=colour, label=name.replace("$", r"\$"))
        for colour, name in zip(_COLOURS, short, strict=False)
    ]
    handles.append(Line2D([], [], linestyle="", marker="+", color="black", label="users"))
    handles.append(Line2D([], [], color="black", linewidth=1.4, label="floor's share so far"))
    bars[0].legend(handles=handles, loc="center left", frameon=False, fontsize=9)
    return figure


def _map(axes: Axes, places: NDArray[Any], items: NDArray[Any]) -> None:
    """Draw the items in the colours of their groups, and the users."""
    (item_x, user_x), (item_y, user_y) = (np.split(one, [len(items)]) for one in places.T)
    axes.scatter(user_x, user_y, marker="+", s=16, linewidths=0.7, color="black", alpha=0.5)
    axes.scatter(item_x, item_y, s=11, color=[_COLOURS[item] for item in items], linewidths=0, alpha=0.9)
    axes.set_xticks([])
    axes.set_yticks([])
