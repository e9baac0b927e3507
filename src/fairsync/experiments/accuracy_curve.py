"""The paper's accuracy curve: accuracy by floor."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from fairsync.experiments.curves import Curve, draw_curves
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, WorkStep
from fairsync.experiments.floor_levels import floor_at_share
from fairsync.experiments.seed_means import COLUMNS, mean_over_seeds
from fairsync.experiments.trials import Trial

if TYPE_CHECKING:
    from fairsync.experiments.reproduction_setting import Setting

_METHODS = ("none", "uncalibrated", "fairsync", "guaranteed")
# The paper's floors are 10 to 200, which are these shares of its main one.
_SHARES, _QUICK_SHARES = (0.05, 0.25, 0.5, 1.0), (0.5, 1.0)
_RAISES, _QUICK_RAISES = tuple(2**power for power in range(1, 12)), (4, 16)

_WORDS = (
    "Accuracy of the base model {model} when the floor of every group is raised. The paper's floors, 10 to 200, are"
    " scaled to these data (up to {floor}); then they are raised further as long as they can be met at all, because"
    " only there do groups compete for slots. FairSync is tuned again at each floor. Hollow markers: some group"
    " missed its floor. The dashed line is retrieval without floors."
)


def floors_below(setting: Setting) -> list[int]:
    """Return the paper's floors, scaled so that the highest is that of the setting.

    Examples
    --------
    >>> from fairsync.experiments.reproduction_setting import Setting
    >>> floors_below(Setting("beauty", "", floor=200)), floors_below(Setting("tiny", "", floor=2))
    ([10, 50, 100, 200], [1, 2])
    """
    shares = _QUICK_SHARES if setting.quick else _SHARES
    return sorted({max(1, round(share * setting.floor)) for share in shares})


def floors_above(lab: Lab, k: int) -> list[int]:
    """Return higher floors, as long as they are feasible."""
    raises = _QUICK_RAISES if lab.setting.quick else _RAISES
    limit = floor_at_share(lab, k, 1.0)
    return list(takewhile(lambda floor: floor <= limit, (factor * lab.setting.floor for factor in raises)))


def _at(setting: Setting, method: str, k: int, floor: int) -> list[Trial]:
    """Return the trials of one point, one for each seed."""
    return [Trial(setting.analysed, seed, method, k, floor, batch_size=setting.batch_size) for seed in setting.seeds]


def _trials(setting: Setting) -> list[Trial]:
    return [
        trial
        for k in setting.ks
        for floor in floors_below(setting)
        for method in _METHODS
        for trial in _at(setting, method, k, floor)
    ]


def _steps(lab: Lab) -> list[WorkStep]:
    trials = [
        trial
        for k in lab.setting.ks
        for floor in floors_above(lab, k)
        for method in _METHODS
        for trial in _at(lab.setting, method, k, floor)
    ]
    trials.sort(key=lambda trial: trial.seed)  # so that each model is loaded once
    return [
        WorkStep(f"{one.method} on {one.model}, K = {one.k}, floor {one.floor}", partial(lab.trials.outcome, one))
        for one in trials
    ]


def _show(lab: Lab) -> Exhibit:
    setting = lab.setting
    floors = {k: [*floors_below(setting), *floors_above(lab, k)] for k in setting.ks}
    points = {
        method: {
            k: {floor: mean_over_seeds(lab, _at(setting, method, k, floor)) for floor in floors[k]} for k in setting.ks
        }
        for method in _METHODS
    }
    rows: list[list[str | int | float | None]] = [
        [k, floor, method, *points[method][k][floor].percents()]
        for k in setting.ks
        for floor in floors[k]
        for method in _METHODS
    ]
    curves = [Curve("no floors" if method == "none" else method, method, points[method]) for method in _METHODS]
    figure = draw_curves(curves, ("recall", "ndcg", "hit_rate"), "floor of every group")
    words = _WORDS.format(model=setting.analysed, floor=setting.floor)
    return Exhibit(
        EXPERIMENT.name, EXPERIMENT.title, words, ExhibitTable(["K", "floor", "method", *COLUMNS], rows), figure
    )


EXPERIMENT = Experiment("accuracy-curve", "Figure: accuracy under rising floors", _trials, _show, _steps)
