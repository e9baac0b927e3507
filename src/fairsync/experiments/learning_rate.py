"""The sensitivity of the paper's method to its learning rate, compared with a method without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fairsync.experiments.compared_methods import GRIDS, QUICK_GRIDS
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment
from fairsync.experiments.plot import COLOURS, MARKERS, missed_handle, scale_as_ratio
from fairsync.report.plot import label_log_ticks, tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.typing import LineStyleType

    from fairsync.experiments.experiment import Lab
    from fairsync.experiments.trials import Trial

_BATCHES, _QUICK_BATCHES = (1, 16, 256), (16, 256)
_STYLES: dict[int, LineStyleType] = {1: "-", 16: "--", 256: ":"}
_LEAST_SHOWN = 0.1  # lower costs belong to methods that miss floors, and would compress the axis
_COLUMNS = ("method", "B", "learning rate", "ESP %", "missing exposures", "Recall %", "cost ÷ hindsight")
_WORDS = (
    "FairSync with every learning rate of the grid, and guaranteed, which has none, at several batch sizes B. A rate is"
    " in multiples of the mean relevance of a candidate; where relevance is a cosine, the paper's range is 0.0001 to"
    " 0.01. K = {k}; every group is promised {floor} exposures, a floor that is binding. A rate is good if ESP is 100 %"
    " and the cost is low; the question is how wide the range of good rates is, and whether it is the same at every B."
    " Hollow marks: floors were missed, so that the cost is not the price of the promise (below 0.1 it is in the table"
    " only). The paper tunes the rate, and does not say how much hangs on it."
)


class LearningRateRow(NamedTuple):
    """The result of a learning rate."""

    method: str
    batch_size: int
    rate: str | None
    esp: float
    missing: int
    recall: float
    cost_ratio: float | None


def learning_rate(lab: Lab) -> Exhibit:
    """Return floors kept, recall and cost by learning rate and batch size."""
    rows = []
    for trial in _trials(lab):
        got = lab.trials.outcome(trial)
        rate = None if trial.coefficient is None else f"{trial.coefficient:g}"
        figures = 100 * got.esp, got.missing, 100 * got.recall, got.cost_ratio
        rows.append(LearningRateRow(trial.method, trial.batch_size, rate, *figures))
    title = f"{EXPERIMENT.title}: {lab.setting.analysed} on {lab.setting.data}"
    words = _WORDS.format(k=trial.k, floor=trial.floor)
    return Exhibit(EXPERIMENT.name, title, words, ExhibitTable(_COLUMNS, rows), _plot(rows, trial.k))


def _trials(lab: Lab) -> list[Trial]:
    setting = lab.setting
    k = setting.ks[0]
    rates = (QUICK_GRIDS if setting.quick else GRIDS)["fairsync"]
    floor = lab.binding_floor(k)
    return [
        lab.trial(method, k, floor, batch_size=size, coefficient=rate)
        for method, tried in (("fairsync", rates), ("guaranteed", (None,)))
        for size in (_QUICK_BATCHES if setting.quick else _BATCHES)
        for rate in tried
    ]


def _plot(rows: Sequence[LearningRateRow], k: int) -> Figure:
    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 3)
    sizes = list(dict.fromkeys(row.batch_size for row in rows))
    for axes, name in zip(panels, ("esp", "recall", "cost_ratio"), strict=True):
        for size in sizes:
            own = [row for row in rows if row.batch_size == size and getattr(row, name) is not None]
            _draw(axes, own, name, _STYLES[size])
        tidy(axes)
        axes.set_xscale("log")
        label_log_ticks(axes.xaxis)
        axes.set_xlabel("learning rate ÷ mean relevance")
    for axes, words in zip(panels, ("ESP (%)", f"Recall@{k} (%)", "cost ÷ hindsight"), strict=True):
        axes.set_ylabel(words)
    scale_as_ratio(panels[2], "y")
    panels[2].set_ylim(bottom=max(_LEAST_SHOWN, panels[2].get_ylim()[0]))
    names = ("fairsync", "guaranteed")
    handles = [Line2D([], [], color=COLOURS[name], marker=MARKERS[name], label=name) for name in names]
    handles += [Line2D([], [], color="#444444", linestyle=_STYLES[size], label=f"B = {size}") for size in sizes]
    handles.append(missed_handle())
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False)
    return figure


def _draw(axes: Axes, rows: Sequence[LearningRateRow], name: str, style: LineStyleType) -> None:
    """Draw one batch size: a curve over the rates, and a horizontal line for the method without one."""
    for row in rows:
        colour = COLOURS[row.method]
        if row.rate is None:
            axes.axhline(getattr(row, name), color=colour, linestyle=style)
            continue
        face = colour if row.esp == 100 else "white"
        axes.plot(float(row.rate), getattr(row, name), MARKERS[row.method], color=colour, markerfacecolor=face)
    curve = [(float(row.rate), getattr(row, name)) for row in rows if row.rate]
    axes.plot(*zip(*curve, strict=True), color=COLOURS["fairsync"], linestyle=style, zorder=1)


EXPERIMENT = Experiment("learning-rate", "Sensitivity to the learning rate", learning_rate, _trials)
