"""Means of outcomes over several seeds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairsync.experiments.experiment import Lab
    from fairsync.experiments.trials import Trial


@dataclass(frozen=True)
class SeedMean:
    """Means over the seeds.

    Attributes
    ----------
    recall, ndcg, ndcg_of_hits, hit_rate, esp : float
        Means of the fields of :class:`fairsync.experiments.trials.TrialMeasures`. ESP is 1 only if no seed missed a
        floor.
    """

    recall: float
    ndcg: float
    ndcg_of_hits: float
    hit_rate: float
    esp: float

    def percents(self) -> list[float]:
        """Return all five in percent, in this order."""
        return [100 * value for value in vars(self).values()]


COLUMNS = ("Recall %", "NDCG %", "NDCG of hits %", "HR %", "ESP %")
"""Headings for :meth:`SeedMean.percents`."""


def mean_over_seeds(lab: Lab, trials: Iterable[Trial]) -> SeedMean:
    """Return the mean outcome of trials that differ only in their seed."""
    outcomes = [lab.trials.outcome(trial) for trial in trials]
    return SeedMean(*(fmean(getattr(one, name) for one in outcomes) for name in SeedMean.__dataclass_fields__))
