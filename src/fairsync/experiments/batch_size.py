"""The paper's figure on the batch size: accuracy and floors kept by the number of requests between price changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, SeedMean, WorkStep
from fairsync.experiments.plot import Curve, draw_curves

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trial

_SIZES, _QUICK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), (1, 8, 64, 512)

_WORDS = (
    "Prices change after every B requests; the base model is {model}. Floors are {floors}: those of the paper,"
    " scaled to these data, or higher ones where these would hardly be felt. FairSync is shown twice: with the"
    " learning rate that is best at B = {batch_size}, and tuned again for each B; the paper does not say which it"
    " shows. Hollow markers: some group missed its floor. The dashed grey line is retrieval without floors."
)


class _Line(NamedTuple):
    """A line of the figure, which maps K, B and seed to a trial."""

    label: str
    method: str
    trial: Callable[[int, int, int], Trial]
    dashed: bool = False


def batch_sizes(setting: Setting) -> tuple[int, ...]:
    """Return the batch sizes of the paper's figure."""
    return _QUICK_SIZES if setting.quick else _SIZES


def _lines(lab: Lab) -> list[_Line]:
    setting = lab.setting

    def at(method: str, k: int, size: int, seed: int) -> Trial:
        return lab.trial(method, k, lab.binding_floor(k), seed=seed, batch_size=size)

    def tuned_once(k: int, size: int, seed: int) -> Trial:
        once = at("fairsync", k, setting.batch_size, seed)
        return replace(once, batch_size=size, coefficient=lab.trials.tuned(once))

    return [
        _Line("no floors", "none", lambda k, _, seed: at("none", k, setting.batch_size, seed)),
        _Line(f"fairsync, tuned at B = {setting.batch_size}", "fairsync", tuned_once),
        _Line("fairsync, tuned at each B", "fairsync", partial(at, "fairsync"), dashed=True),
        _Line("guaranteed", "guaranteed", partial(at, "guaranteed")),
    ]


def _steps(lab: Lab) -> list[WorkStep]:
    def run(line: _Line, k: int, size: int, seed: int) -> None:
        lab.trials.outcome(line.trial(k, size, seed))

    return [
        WorkStep(f"{line.label}, K = {k}, B = {size}, seed {seed}", partial(run, line, k, size, seed))
        for seed in lab.setting.seeds  # outermost, so that each model is loaded once
        for line in _lines(lab)
        for k in lab.setting.ks
        for size in batch_sizes(lab.setting)
    ]


def _show(lab: Lab) -> Exhibit:
    setting, sizes = lab.setting, batch_sizes(lab.setting)
    curves = []
    for line in _lines(lab):
        points = {
            k: {size: lab.mean_over_seeds([line.trial(k, size, seed) for seed in setting.seeds]) for size in sizes}
            for k in setting.ks
        }
        curves.append(Curve(line.label, line.method, points, line.dashed))
    rows: list[list[str | int | float | None]] = [
        [k, lab.binding_floor(k), size, curve.label, *curve.points[k][size].percents()]
        for k in setting.ks
        for size in sizes
        for curve in curves
    ]
    figure = draw_curves(curves, ("recall", "ndcg", "hit_rate", "esp"), "batch size B")
    floors = ", ".join(f"{lab.binding_floor(k)} at K = {k}" for k in setting.ks)
    words = _WORDS.format(model=setting.analysed, floors=floors, batch_size=setting.batch_size)
    table = ExhibitTable(["K", "floor", "B", "method", *SeedMean.HEADINGS], rows)
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, table, figure)


EXPERIMENT = Experiment("batch-size", "Figure: accuracy and floors kept by batch size", _show, steps=_steps)
