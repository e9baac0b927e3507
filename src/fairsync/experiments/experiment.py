"""Experiment: the trials and other work of a table or figure, and the function that makes its exhibit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.experiments.trials import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairsync.data.dataset import Dataset
    from fairsync.experiments.exhibit import Exhibit
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trials

BINDING_SHARE = 0.5
"""A binding floor, as a fraction of the largest feasible one; see :meth:`Lab.binding_floor`."""


@dataclass(frozen=True)
class SeedMean:
    """Means over the seeds.

    Attributes
    ----------
    recall, ndcg, ndcg_of_hits, hit_rate, esp : float
        Means of the fields of :class:`fairsync.experiments.trials.TrialMeasures`. ESP is 1 only if no seed missed a
        floor.
    """

    HEADINGS: ClassVar = ("Recall %", "NDCG %", "NDCG of hits %", "HR %", "ESP %")
    """Headings for :meth:`percents`."""

    recall: float
    ndcg: float
    ndcg_of_hits: float
    hit_rate: float
    esp: float

    def percents(self) -> list[float]:
        """Return all five in percent, in this order."""
        return [100 * value for value in vars(self).values()]


@dataclass(frozen=True)
class Lab:
    """The context of an experiment.

    Attributes
    ----------
    setting : Setting
        The setting of the reproduction.
    dataset : Dataset
        The data.
    trials : Trials
        Runs trials and stores their outcomes. Other work may use its ``store`` and ``bases``.
    """

    setting: Setting
    dataset: Dataset
    trials: Trials

    def cell(self, what: str, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return a value from the store, or compute and store it, for these data and this kind of run."""
        shared = {"data": self.setting.fingerprint, "quick": self.setting.quick}
        return self.trials.store.cell(what, shared | key, compute)

    def trial(self, method: str, k: int, floor: int, **terms: Any) -> Trial:
        """Return a trial on the analysed model with the first seed, unless the further terms say otherwise."""
        setting = self.setting
        usual: dict[str, Any] = {"model": setting.analysed, "seed": setting.seeds[0], "batch_size": setting.batch_size}
        return Trial(method=method, k=k, floor=floor, **usual | terms)

    def of_each_seed(self, method: str, k: int, floor: int, **terms: Any) -> list[Trial]:
        """Return the same trial for every seed; see :meth:`trial`."""
        return [self.trial(method, k, floor, seed=seed, **terms) for seed in self.setting.seeds]

    def mean_over_seeds(self, trials: Iterable[Trial]) -> SeedMean:
        """Return the mean outcome of trials that differ only in their seed."""
        outcomes, names = [self.trials.outcome(trial) for trial in trials], [one.name for one in fields(SeedMean)]
        return SeedMean(*(fmean(getattr(one, name) for one in outcomes) for name in names))

    def floor_at_share(self, k: int, share: float) -> int:
        """Return the floor, equal for all groups, that is a fraction of the largest feasible one, and at least 1.

        Fractions make data sets and list lengths comparable. The largest floor is limited by the test requests: a list
        has ``k`` slots in all, and holds no item twice.
        """
        _, sizes = np.unique(self.dataset.item_groups, return_counts=True)
        requests = len(self.trials.bases.split.test)
        largest = min(requests * k // len(sizes), requests * min(k, int(sizes.min())))
        if largest < 1:
            raise InvalidInputError(
                f"{requests} requests of {k} candidates cannot show each of {len(sizes)} groups once: merge small"
                " groups (fairsync prepare --least-items)."
            )
        return max(1, round(share * largest))

    def binding_floor(self, k: int) -> int:
        """Return the floor of the setting, or half of the largest feasible floor if that is higher.

        Scaled to other data, the paper's floors are often met without any policy. Prices are then 0, and a figure about
        them would show nothing.
        """
        return max(self.setting.floor, self.floor_at_share(k, BINDING_SHARE))

    def claimed_share(self, k: int, floor: int) -> float:
        """Return the fraction of all slots that equal floors claim."""
        groups = len(np.unique(self.dataset.item_groups))
        return floor * groups / (len(self.trials.bases.split.test) * k)


@dataclass(frozen=True)
class WorkStep:
    """A unit of work that is no trial, and whose result is stored.

    Attributes
    ----------
    label : str
        Description of the work, for the progress bar.
    run : callable
        Function that does the work, unless its result is stored already.
    """

    label: str
    run: Callable[[], object]


def nothing(_: Lab) -> tuple[()]:
    """Return no trials, and no steps."""
    return ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes
    ----------
    name : str
        Name on the command line and in files.
    title : str
        Title in one line.
    show : callable
        Function from the lab to the exhibit. It is called after all trials and steps; it may ask for their results
        only.
    trials : callable
        Function from the lab to the required trials. Those of all experiments are run first, in an order that loads
        each model once. It may not ask for outcomes.
    steps : callable
        Function from the lab to further units of work, for experiments that need more than trials.
    """

    name: str
    title: str
    show: Callable[[Lab], Exhibit]
    trials: Callable[[Lab], Sequence[Trial]] = nothing
    steps: Callable[[Lab], Sequence[WorkStep]] = nothing
