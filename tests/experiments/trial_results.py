"""Results of trials with given numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fairsync.experiments.trials import Trial, TrialMeasures
from fairsync.experiments.verdicts import (
    TrialResult,
)

NOISE = np.random.default_rng(0).normal(scale=0.01, size=200)


def result(method: str, recall: float = 0.5, esp: float = 1.0, *, cost: float = 1.0, **terms: Any) -> TrialResult:
    """Return a result whose three measures are ``recall``, with some noise for each request."""
    each = (recall + NOISE * (1 + len(method) % 3)).tolist()
    trial = Trial(**{"model": "svd", "seed": 0, "method": method, "k": 20, "floor": 10, **terms})
    outcome = TrialMeasures(
        recall=recall,
        ndcg=recall,
        ndcg_of_hits=recall,
        hit_rate=recall,
        esp=esp,
        exposures=[1],
        missing=0,
        relevance=100.0,
        cost=cost,
        least_cost=1.0,
        coefficient=trial.coefficient,
        each={"recall": each, "ndcg_of_hits": each, "hit_rate": each},
    )
    return TrialResult(trial, outcome)


def at(ks: Iterable[int] = (20, 50), **by_method: float) -> list[TrialResult]:
    return [result(method.replace("_", "-"), recall, k=k) for k in ks for method, recall in by_method.items()]


def along(name: str, points: dict[int, float], method: str = "fairsync", **terms: Any) -> list[TrialResult]:
    return [result(method, value, **{name: place, **terms}) for place, value in points.items()]
