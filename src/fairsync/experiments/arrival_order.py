"""The effect of the order of arrival: at random, sorted by taste, or in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fairsync.experiments.compared_methods import METHODS
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment
from fairsync.experiments.plot import COLOURS, missed_handle, scale_as_ratio
from fairsync.report.plot import tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fairsync.experiments.experiment import Lab
    from fairsync.experiments.trials import Order, Trial

_ORDERS: dict[Order, str] = {"dealt": "at random", "sorted": "sorted by taste", "time": "in order of time"}
_MARKERS: dict[Order, str] = {"dealt": "o", "sorted": "s", "time": "^"}
_COLUMNS = ("order", "method", "ESP %", "missing exposures", "Recall %", "cost ÷ hindsight")
_WORDS = (
    "The same test requests arrive in other orders: at random, as in every other experiment; sorted by the group each"
    " likes best, so that one taste is over before the next begins; and{time} K = {k}; every group is promised {floor}"
    " exposures, a floor that is binding. Coefficients were tuned on validation requests in random order, since the"
    " order of arrival is unknown in advance. The best plan in hindsight does not depend on the order."
    " Hollow marks: floors were missed, so that the cost is not the price of the promise. The paper tries one order."
)
_TIME = " in order of time, with its days and seasons."
_NO_TIME = " that is all, since these data have no clock."


class ArrivalOrderRow(NamedTuple):
    """The result of a method in an order."""

    order: str
    method: str
    esp: float
    missing: int
    recall: float
    cost_ratio: float | None


def arrival_order(lab: Lab) -> Exhibit:
    """Return floors kept, recall and cost of every method in every order."""
    rows = {}
    for trial in _trials(lab):
        got = lab.trials.outcome(trial)
        figures = 100 * got.esp, got.missing, 100 * got.recall, got.cost_ratio
        rows[trial.order, trial.method] = ArrivalOrderRow(_ORDERS[trial.order], trial.method, *figures)
    time = _TIME if lab.dataset.facts.has_clock else _NO_TIME
    words = _WORDS.format(time=time, k=trial.k, floor=trial.floor)
    title = f"{EXPERIMENT.title}: {lab.setting.analysed} on {lab.setting.data}"
    return Exhibit(EXPERIMENT.name, title, words, ExhibitTable(_COLUMNS, list(rows.values())), _plot(rows, trial.k))


def _trials(lab: Lab) -> list[Trial]:
    k = lab.setting.ks[0]
    floor = lab.binding_floor(k)
    return [
        lab.trial(method, k, floor, order=order)
        for order in _ORDERS
        for method in METHODS
        if order != "time" or lab.dataset.facts.has_clock
    ]


def _plot(rows: dict[tuple[Order, str], ArrivalOrderRow], k: int) -> Figure:
    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True)
    orders = list(dict.fromkeys(order for order, _ in rows))
    for place, method in enumerate(METHODS):
        own = {order: rows[order, method] for order in orders}
        for axes, name in zip(panels, ("esp", "recall", "cost_ratio"), strict=True):
            values = {order: getattr(row, name) for order, row in own.items()}
            if name == "cost_ratio":  # a ratio of 0 or without a value has no place on a log scale
                values = {order: value for order, value in values.items() if value is not None and value > 0}
            if not values:
                continue
            axes.hlines(place, min(values.values()), max(values.values()), color=COLOURS[method], linewidth=1.2)
            for at, (order, value) in enumerate(values.items()):
                face = COLOURS[method] if own[order].esp == 100 else "white"
                # Equal outcomes are drawn slightly apart, so that all are visible.
                height = place + 0.18 * (at - (len(values) - 1) / 2)
                axes.plot(value, height, _MARKERS[order], color=COLOURS[method], markerfacecolor=face, markersize=7)
    for axes, words in zip(panels, ("ESP (%)", f"Recall@{k} (%)", "cost ÷ hindsight"), strict=True):
        tidy(axes)
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        axes.set_xlabel(words)
    scale_as_ratio(panels[2], "x")
    panels[0].set_yticks(range(len(METHODS)), METHODS)
    panels[0].invert_yaxis()
    look: dict[str, Any] = {"linestyle": "", "color": "#444444"}
    handles = [Line2D([], [], marker=_MARKERS[order], label=_ORDERS[order], **look) for order in orders]
    handles.append(missed_handle())
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


EXPERIMENT = Experiment("arrival-order", "Other orders of arrival", arrival_order, _trials)
