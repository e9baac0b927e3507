"""The paper's table of group-level requirements: the floor of every group is drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.experiments.comparison import OURS, RIVALS
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, SeedMean

if TYPE_CHECKING:
    from fairsync.experiments.trials import Trial

_METHODS = ("none", *RIVALS, *OURS)

_WORDS = (
    "Each group is promised a number of exposures drawn from 1 to {floor:,}, another one for each; base model"
    " {model}, K = {k}. Bold: more accurate than both baselines. The paper draws from 1 to 200 and has no row for"
    " retrieval without floors (“none”), nor for “guaranteed”, this program's own method; its NDCG is the one “of"
    " hits”."
)


def _at(lab: Lab, method: str) -> list[Trial]:
    """Return the trials of one row, one for each seed. Each seed draws its own floors."""
    return lab.of_each_seed(method, min(lab.setting.ks), lab.setting.floor, spread=True)


def _trials(lab: Lab) -> list[Trial]:
    return [trial for method in _METHODS for trial in _at(lab, method)]


def _show(lab: Lab) -> Exhibit:
    setting = lab.setting
    values = {method: lab.mean_over_seeds(_at(lab, method)).percents() for method in _METHODS}
    bold = {
        (_METHODS.index(method), 1 + at)
        for method in OURS
        for at, value in enumerate(values[method][:-1])  # the last is ESP
        if all(value > values[rival][at] for rival in RIVALS)
    }
    table = ExhibitTable(["Method", *SeedMean.HEADINGS], [[method, *values[method]] for method in _METHODS], bold=bold)
    words = _WORDS.format(floor=setting.floor, model=setting.analysed, k=min(setting.ks))
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, table)


EXPERIMENT = Experiment("random-floors", "Table: floors that differ from group to group", _show, _trials)
