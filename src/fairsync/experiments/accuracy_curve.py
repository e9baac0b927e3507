"""The paper's accuracy curve: accuracy by floor."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, SeedMean
from fairsync.experiments.plot import Curve, draw_curves

if TYPE_CHECKING:
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trial

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
    limit = lab.floor_at_share(k, 1.0)
    return list(takewhile(lambda floor: floor <= limit, (factor * lab.setting.floor for factor in raises)))


def _floors(lab: Lab) -> dict[int, list[int]]:
    """Return {K: all floors}."""
    return {k: [*floors_below(lab.setting), *floors_above(lab, k)] for k in lab.setting.ks}


def _trials(lab: Lab) -> list[Trial]:
    return [
        trial
        for k, floors in _floors(lab).items()
        for floor in floors
        for method in _METHODS
        for trial in lab.of_each_seed(method, k, floor)
    ]


def _show(lab: Lab) -> Exhibit:
    setting, floors = lab.setting, _floors(lab)
    points = {
        method: {
            k: {floor: lab.mean_over_seeds(lab.of_each_seed(method, k, floor)) for floor in floors[k]}
            for k in setting.ks
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
    table = ExhibitTable(["K", "floor", "method", *SeedMean.HEADINGS], rows)
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, table, figure)


EXPERIMENT = Experiment("accuracy-curve", "Figure: accuracy under rising floors", _show, _trials)
