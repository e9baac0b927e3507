"""How things grow, as pictures: one column for each thing that grows, rows for time, memory and speed-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture

from fairsync.report.plot import tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.bench.run import Figure

_COLOURS = {"exact": "#1b6ca8", "ivf": "#d1495b", "hnsw": "#66a182", "one-hot": "#8d8d8d"}
_ROWS = (
    ("ms_batch", "ms per request, 64 at a time"),
    ("ms_single", "ms per request, alone"),
    ("memory_bytes", "bytes of embeddings and index"),
)


def plot_growth(figures: Sequence[Figure]) -> Picture:
    """Draw all series; both axes are logarithmic, so that a straight line of slope 1 grows in proportion."""
    things = list(dict.fromkeys(one.growing for one in figures))
    picture = Picture(figsize=(3.1 * len(things) + 0.6, 8.4), layout="constrained")
    panels = picture.subplots(len(_ROWS), len(things), squeeze=False, sharey="row", sharex="col")
    for column, thing in enumerate(things):
        for row, (name, title) in enumerate(_ROWS):
            axes = panels[row][column]
            for index, colour in _COLOURS.items():
                series = [one for one in figures if one.growing == thing and one.point.index == index]
                known = [(getattr(one.point, thing), getattr(one, name)) for one in series]
                drawn = [(x, y) for x, y in known if y is not None]
                if drawn:
                    axes.plot(*zip(*drawn, strict=True), color=colour, marker="o", markersize=4, label=index)
            axes.set_xscale("log")
            axes.set_yscale("log")
            tidy(axes)
            if column == 0:
                axes.set_ylabel(title)
        panels[0][column].set_title(thing, loc="left", fontsize=11, weight="bold")
        panels[-1][column].set_xlabel(thing)
    handles = {
        text: handle for axes in panels.flat for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    picture.legend(handles.values(), handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return picture
