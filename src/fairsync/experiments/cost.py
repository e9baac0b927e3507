"""The cost of floors under every method, and the least possible cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from fairsync.experiments.compared_methods import METHODS
from fairsync.experiments.comparison import all_trials, tense_floors
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab
from fairsync.experiments.plot import COLOURS, MARKERS, missed_handle
from fairsync.report.plot import tidy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import TrialMeasures

_METHODS = tuple(name for name in METHODS if name != "none")
_HINDSIGHT = "hindsight"
_NEXT_TO_NOTHING = 1e-3  # percent; below it, the axis of the figure is linear
_ROUNDING = 1e-9  # relative rounding error of sums of relevance, which is not a cost

_WORDS = (
    "The trials of Table 2 where floors are binding, again. The cost of a method is the relevance that its candidates"
    " lack against retrieval without floors, here in percent of the latter, and in multiples of what the best plan in"
    " hindsight must give up, all requests known: no method that meets the floors can be below 1. Where floors were"
    " missed (ESP below 100 %, hollow in the figure) a cost says little: to miss them is cheap. “–”: the floors cost"
    " nothing in hindsight. The paper reports accuracy alone, which moves less than relevance and depends on few"
    " hits."
)


@dataclass(frozen=True)
class Cost:
    """The cost of floors.

    Attributes
    ----------
    ratio : float or None
        Cost divided by the least possible cost, or None if that is 0.
    percent : float or None
        Cost in percent of the relevance without floors, or None if that is not positive.
    esp : float
        Percentage of groups that reached their floor.
    """

    ratio: float | None
    percent: float | None
    esp: float


def cost_of(outcomes: Sequence[TrialMeasures]) -> Cost:
    """Return what a method costs, given its outcome for each seed.

    Sums over seeds are compared, so that a seed under which floors cost next to nothing does not decide.
    """
    return _cost(outcomes, sum(one.cost for one in outcomes), fmean(100 * one.esp for one in outcomes))


def least_cost(outcomes: Sequence[TrialMeasures]) -> Cost:
    """Return the cost of the best plan in hindsight, given the outcomes of any method for each seed."""
    return _cost(outcomes, sum(one.least_cost for one in outcomes), 100.0)


def _cost(outcomes: Sequence[TrialMeasures], paid: float, esp: float) -> Cost:
    plain = sum(one.relevance + one.cost for one in outcomes)
    least = sum(one.least_cost for one in outcomes)
    rounding = _ROUNDING * abs(plain)
    paid = paid if abs(paid) > rounding else 0.0
    return Cost(paid / least if least > rounding else None, 100 * paid / plain if plain > 0 else None, esp)


def _show(lab: Lab) -> Exhibit:
    setting = lab.setting
    floors = tense_floors(lab)
    costs: dict[tuple[str, str, int], Cost] = {}
    for model, k in product(setting.models, setting.ks):
        for method in _METHODS:
            outcomes = [lab.trials.outcome(trial) for trial in lab.of_each_seed(method, k, floors[k], model=model)]
            costs[model, method, k] = cost_of(outcomes)
        costs[model, _HINDSIGHT, k] = least_cost(outcomes)
    rows = [
        [model, method, *(value for k in setting.ks for value in vars(costs[model, method, k]).values())]
        for model, method in product(setting.models, (*_METHODS, _HINDSIGHT))
    ]
    headings = (
        f"{name}@{k}{unit}"
        for k in setting.ks
        for name, unit in (("Cost ÷ hindsight", ""), ("Cost", ", % of relevance"), ("ESP", " %"))
    )
    table = ExhibitTable(["Base model", "Method", *headings], rows, digits=3)
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, _WORDS, table, _draw(costs, setting))


def _draw(costs: Mapping[tuple[str, str, int], Cost], setting: Setting) -> Figure:
    """Plot a panel for each K with a row for each base model and a mark for each method."""
    ks, models = setting.ks, setting.models
    size = (max(6.0, 4.8 * len(ks)), 1.6 + 0.5 * len(models))
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    panels = figure.subplots(1, len(ks), sharex=True, sharey=True, squeeze=False)[0]
    for axes, k in zip(panels, ks, strict=True):
        for (row, model), method in product(enumerate(models), (*_METHODS, _HINDSIGHT)):
            cost = costs[model, method, k]
            if cost.percent is not None:
                axes.plot([cost.percent], [row], **_style(method, missed=cost.esp < 100))
        axes.set_title(f"K = {k}", loc="left", fontsize=11, weight="bold")
        axes.set_xlabel("relevance given up, %")
        tidy(axes)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    _scale(panels[0], [cost.percent for cost in costs.values() if cost.percent is not None])
    handles = [Line2D([], [], label=method, **_style(method, missed=False)) for method in (*_METHODS, _HINDSIGHT)]  # type: ignore[arg-type]
    legend = [*handles, missed_handle()]
    figure.legend(handles=legend, loc="outside upper center", ncols=(len(legend) + 1) // 2, frameon=False, fontsize=9)
    return figure


def _style(method: str, missed: bool) -> dict[str, object]:
    if method == _HINDSIGHT:
        return {"linestyle": "", "marker": "|", "color": "black", "markersize": 13, "markeredgewidth": 2, "zorder": 2}
    colour = COLOURS[method]
    face = "none" if missed else colour
    return {"linestyle": "", "marker": MARKERS[method], "color": colour, "markerfacecolor": face, "markersize": 7}


def _scale(axes: Axes, costs: Sequence[float]) -> None:
    """Scale the x axis symmetric-logarithmically, which includes a cost of 0."""
    smallest = min((cost for cost in costs if cost > 0), default=1.0)
    linear = max(_NEXT_TO_NOTHING, 10.0 ** math.floor(math.log10(smallest)))
    axes.set_xscale("symlog", linthresh=linear, linscale=0.5)
    axes.set_xlim(-0.2 * linear, 1.6 * max(costs, default=1.0))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


EXPERIMENT = Experiment(
    "cost",
    "What floors cost, beside the least possible",
    _show,
    lambda lab: all_trials(lab, tense_floors(lab)),
)
