"""The paper's Table 2: every method on every base model, at the paper's floors and where floors are binding."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from fairsync.experiments.compared_methods import BASELINES, METHODS
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment
from fairsync.experiments.plot import COLOURS, MARKERS
from fairsync.experiments.verdicts import LEVEL, compare
from fairsync.report.plot import tidy
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from fairsync.experiments.experiment import Lab, SeedMean
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trial

OURS = ("fairsync", "guaranteed")
RIVALS = ("k-neighbor", "uncalibrated")
"""The baselines that meet floors in practice. Improvements are tested against them."""
HEADINGS = {
    "recall": "Recall@{k} %",
    "ndcg": "NDCG@{k} %",
    "ndcg_of_hits": "NDCG of hits@{k} %",
    "hit_rate": "HR@{k} %",
    "esp": "ESP@{k} %",
}
_MEASURES = tuple(name for name in HEADINGS if name != "esp")

_WORDS = (
    "Every base model is asked the same {requests:,} test requests under every method; each of {groups:,} groups is"
    " promised {floors}, and prices change every {batch_size:,} requests. Methods with a coefficient are"
    " tuned on the validation requests, where floors are a tenth higher if there is room: most floors first, then most"
    " relevance. Bold: more accurate than all four baselines; *: significantly more than both K-neighbor and"
    " Uncalibrated (paired t-test over requests{pooled},"
    " p < {level:g}; see {name}-p-values.csv). In the figure, a mark is one base model, hollow where some group missed"
    " its floor. The paper's NDCG is the one “of hits”, the other is the standard definition; its table has neither"
    " retrieval without floors (“none”) nor “guaranteed”, this program's own method."
)


_TENSE_WORDS = (
    " Scaled to these data, the paper's floors may be met by retrieval without floors already, and then compare little."
    " These are half of the largest floors that could be kept for all groups."
)


def all_trials(lab: Lab, floors: Mapping[int, int]) -> list[Trial]:
    """Return the trials of the whole table, given the floor at each K."""
    cells = product(lab.setting.models, METHODS, lab.setting.ks)
    return [trial for model, method, k in cells for trial in lab.of_each_seed(method, k, floors[k], model=model)]


def paper_floors(lab: Lab) -> dict[int, int]:
    """Return {K: the paper's floor, scaled to these data}."""
    return dict.fromkeys(lab.setting.ks, lab.setting.floor)


def tense_floors(lab: Lab) -> dict[int, int]:
    """Return {K: a binding floor}."""
    return {k: lab.binding_floor(k) for k in lab.setting.ks}


def _show(lab: Lab, experiment: Experiment, floors: Mapping[int, int], more_words: str = "") -> Exhibit:
    setting = lab.setting
    cells = {
        (model, method, k): lab.mean_over_seeds(lab.of_each_seed(method, k, floors[k], model=model))
        for model, method, k in product(setting.models, METHODS, setting.ks)
    }
    tests = _tests(lab, floors)
    rows: list[list[str | float]] = []
    bold, starred = set(), set()
    for model, method in product(setting.models, METHODS):
        row: list[str | float] = [model, method]
        for k in setting.ks:
            for name in HEADINGS:
                value = getattr(cells[model, method, k], name)
                place = len(rows), len(row)
                row.append(100 * value)
                if method not in OURS or name not in _MEASURES:
                    continue
                if all(value > getattr(cells[model, one, k], name) for one in BASELINES):
                    bold.add(place)
                against = [tests[model, method, k, name, rival] for rival in RIVALS]
                if all(gain > 0 and p < LEVEL for gain, p in against):
                    starred.add(place)
        rows.append(row)
    headings = [heading.format(k=k) for k in setting.ks for heading in HEADINGS.values()]
    table = ExhibitTable(["Base model", "Method", *headings], rows, bold=bold, starred=starred)
    columns = ["Base model", "Method", "K", "Measure", "Against", "Difference, percentage points", "p"]
    p_values = ExhibitTable(columns, [[*what, 100 * gain, p] for what, (gain, p) in tests.items()])
    words = _WORDS.format(
        requests=len(lab.trials.bases.split.test),
        groups=lab.dataset.facts.groups,
        floors=_promised(floors),
        batch_size=setting.batch_size,
        pooled=", seeds pooled" if len(setting.seeds) > 1 else "",
        level=LEVEL,
        name=experiment.name,
    )
    figure = _draw(cells, setting)
    return Exhibit(experiment.name, experiment.title, words + more_words, table, figure, {"p-values": p_values})


def _promised(floors: Mapping[int, int]) -> str:
    """Return the floors as text."""
    if len(set(floors.values())) == 1:
        return count(next(iter(floors.values())), "exposure")
    return ", ".join(f"{count(floor, 'exposure')} at K = {k}" for k, floor in floors.items())


def _tests(lab: Lab, floors: Mapping[int, int]) -> dict[tuple[str, str, int, str, str], tuple[float, float]]:
    """Return the mean difference over requests and its p-value, for each of our cells, measures and rivals."""
    setting, outcome = lab.setting, lab.trials.outcome
    found = {}
    for model, k in product(setting.models, setting.ks):
        outcomes = {
            method: [outcome(trial) for trial in lab.of_each_seed(method, k, floors[k], model=model)]
            for method in (*OURS, *RIVALS)
        }
        for method, name, rival in product(OURS, _MEASURES, RIVALS):
            found[model, method, k, name, rival] = compare(outcomes[method], outcomes[rival], name)
    return found


def _draw(cells: dict[tuple[str, str, int], SeedMean], setting: Setting) -> Figure:
    """Plot a panel for each K with a row for each method: recall of every base model, and ESP as text."""
    ks = setting.ks
    figure = Figure(figsize=(max(6.0, 5.0 * len(ks)), 3.6), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(ks), sharex=True, sharey=True, squeeze=False)[0]
    for axes, k in zip(panels, ks, strict=True):
        for row, method in enumerate(METHODS):
            mine = [(cells[model, method, k], cells[model, "none", k].recall) for model in setting.models]
            for cell, base in sorted(mine, key=lambda one: -one[0].esp):  # hollow marks on top
                if base > 0:
                    style = {"marker": MARKERS[method], "color": COLOURS[method], "linestyle": ""}
                    face = COLOURS[method] if cell.esp == 1 else "none"
                    axes.plot([100 * cell.recall / base], [row], **style, markerfacecolor=face)
            _write(axes, row, _span([100 * cell.esp for cell, _ in mine]))
        _write(axes, -1, "ESP, %", weight="bold")
        axes.set_title(f"K = {k}", loc="left", fontsize=11, weight="bold")
        axes.set_xlabel("recall, % of the base model without floors")
        tidy(axes)
    panels[0].set_yticks(range(len(METHODS)), METHODS)
    panels[0].set_ylim(len(METHODS) - 0.5, -0.5)
    return figure


def _write(axes: Axes, row: int, text: str, weight: str = "normal") -> None:
    """Write text into the right margin of a row."""
    axes.annotate(text, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=9, weight=weight)


def _span(values: list[float]) -> str:
    """Return the range of values as text, rounded down, so that only 100 is shown as 100."""
    ends = [f"{math.floor(10 * value) / 10:g}" for value in (min(values), max(values))]
    return " – ".join(dict.fromkeys(ends))


EXPERIMENT: Experiment = Experiment(
    "table-2",
    "Table 2: accuracy and exposure of every method",
    lambda lab: _show(lab, EXPERIMENT, paper_floors(lab)),
    lambda lab: all_trials(lab, paper_floors(lab)),
)
TENSE: Experiment = Experiment(
    "table-2-tense",
    "Table 2 again, where floors are binding",
    lambda lab: _show(lab, TENSE, tense_floors(lab), _TENSE_WORDS),
    lambda lab: all_trials(lab, tense_floors(lab)),
)
