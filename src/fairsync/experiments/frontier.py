"""The fairness frontier: accuracy and relevance by the share of all slots that floors claim."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment
from fairsync.experiments.plot import COLOURS, MARKERS, missed_handle
from fairsync.report.plot import tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fairsync.experiments.experiment import Lab
    from fairsync.experiments.trials import Trial

METHODS = ("none", "ipw", "uncalibrated", "fairsync", "guaranteed")
BEST = "hindsight"
_BOUNDS = {"none": ("--", COLOURS["none"]), BEST: (":", "black")}  # bounds are lines without marks
_SHARES, _QUICK_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.95), (0.25, 0.75)
_COLUMNS = ("K", "floor", "slots claimed %", "method", "Recall %", "relevance kept %", "ESP %", "coefficient")
_WORDS = (
    "All groups are promised the same, from next to nothing up to 95 % of the largest floor that can be met at all; the"
    " horizontal axis is the share of all slots that the floors claim together. Higher is better. Hollow marks: floors"
    " were missed, so the point is not the price of the promise. The dotted line is the best plan had all requests been"
    " known: no method that meets the floors keeps more relevance (it does not maximise recall). FairSync and IPW are"
    " tuned again at each point. The paper shows the left end of this, accuracy at floors up to 200, with no bound."
)


class FrontierPoint(NamedTuple):
    """The result of a method at a floor: a row of the table."""

    k: int
    floor: int
    share: float
    method: str
    recall: float
    kept: float | None
    esp: float
    coefficient: str | None


def frontier(lab: Lab) -> Exhibit:
    """Return recall and relevance kept, by share of the slots, for every method and for the best plan."""
    points = []
    for k, floors in _floors(lab).items():
        for floor in floors:
            place = k, floor, 100 * lab.claimed_share(k, floor)
            for method in METHODS:
                got = lab.trials.outcome(lab.trial(method, k, floor))
                kept = _kept(got.relevance + got.cost, got.cost)
                used = None if got.coefficient is None else f"{got.coefficient:g}"
                points.append(FrontierPoint(*place, method, 100 * got.recall, kept, 100 * got.esp, used))
            plan = lab.trials.plan(lab.trial("none", k, floor))
            points.append(
                FrontierPoint(*place, BEST, 100 * plan.recall, _kept(got.relevance + got.cost, plan.cost), 100.0, None)
            )
    title = f"{EXPERIMENT.title}: {lab.setting.analysed} on {lab.setting.data}"
    return Exhibit(EXPERIMENT.name, title, _WORDS, ExhibitTable(_COLUMNS, points, digits=2), _plot(points))


def _floors(lab: Lab) -> dict[int, list[int]]:
    """Return {K: floors}."""
    setting = lab.setting
    ks, shares = (setting.ks[:1], _QUICK_SHARES) if setting.quick else (setting.ks, _SHARES)
    return {k: sorted({lab.floor_at_share(k, share) for share in shares}) for k in ks}


def _trials(lab: Lab) -> list[Trial]:
    return [lab.trial(method, k, floor) for k, floors in _floors(lab).items() for floor in floors for method in METHODS]


def _kept(plain: float, cost: float) -> float | None:
    """Return the relevance kept in percent, or None if the total is not positive."""
    return 100 * (plain - cost) / plain if plain > 0 else None


def _plot(points: Sequence[FrontierPoint]) -> Figure:
    ks = list(dict.fromkeys(point.k for point in points))
    figure = Figure(figsize=(1.0 + 4.6 * len(ks), 6.8), layout="constrained")
    panels = figure.subplots(2, len(ks), sharex=True, squeeze=False)
    for k, (top, bottom) in zip(ks, panels.T, strict=True):
        for method in (*METHODS, BEST):
            own = [point for point in points if (point.k, point.method) == (k, method)]
            _draw(top, own, [point.recall for point in own])
            _draw(bottom, own, [nan if point.kept is None else point.kept for point in own])
        top.set_title(f"K = {k}", loc="left", weight="bold")
        top.set_ylabel(f"Recall@{k} (%)")
        bottom.set_ylabel("relevance kept (%)")
        bottom.set_xlabel("slots that floors claim (%)")
        bottom.set_xlim(0, 100)
        for axes in (top, bottom):
            tidy(axes)
    handles = [Line2D([], [], label=method, **_look(method)) for method in (*METHODS, BEST)]
    figure.legend(handles=[*handles, missed_handle()], loc="outside upper center", ncols=4, frameon=False)
    return figure


def _draw(axes: Axes, points: Sequence[FrontierPoint], heights: Sequence[float]) -> None:
    look = _look(points[0].method)
    axes.plot([point.share for point in points], heights, **look)
    if look["marker"]:
        for point, height in zip(points, heights, strict=True):
            face = look["color"] if point.esp == 100 else "white"
            axes.plot(point.share, height, **look | {"markerfacecolor": face})


def _look(method: str) -> dict[str, Any]:
    style, colour = _BOUNDS.get(method, ("-", COLOURS.get(method)))
    return {"color": colour, "linestyle": style, "marker": None if method in _BOUNDS else MARKERS[method]}


EXPERIMENT = Experiment("frontier", "What more fairness costs", frontier, _trials)
