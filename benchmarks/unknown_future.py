r"""What not knowing the future costs: the least that can be expected of a policy that decides requests as they come.

Hindsight knows every request. A policy that knows the distribution of the requests, but not the requests, sets prices
by what is missing and what is left, and chance moves what is missing. Near the best prices the dual of one request is
a parabola: with the covariance :math:`\Sigma` of the exposures in one request and the Hessian H, how much they react to
prices, the prices err by :math:`H^{-1} \Sigma H^{-1} / R` when R requests are left, and a request then costs
:math:`\operatorname{tr}(H^{-1} \Sigma) / 2R` more. Over a horizon of T requests that adds up to

.. math::  \tfrac12 \operatorname{tr}(H^{-1} \Sigma) \, (1 + \tfrac12 + \dots + \tfrac1T)

This is an estimate, not a bound: it holds for prices that can change after every request, and ignores that exposures
are whole numbers. A cold start pays about as much again, because prices that were learnt from t requests err by
:math:`H^{-1} \Sigma H^{-1} / t`.
"""

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.hindsight import Hindsight
from fairsync.promises import Promise

DEPTH = 150
"""Entries of each list that prices near the best ones could bring in."""
STEP = 0.15
"""The change of prices by which their effect is measured, as a fraction of the median price."""

Floats = npt.NDArray[np.float64]


def expected_cost(
    catalog: Catalog, users: npt.NDArray[np.float32], k: int, promises: tuple[Promise, ...], best: Hindsight
) -> float:
    """Return the cost ÷ hindsight that a policy with the right distribution must expect."""
    prices = np.array([best.prices[one.name] for one in promises], dtype=np.float64)
    binding = np.flatnonzero(np.abs(prices) > 1e-9 * np.abs(prices).max())
    member = np.zeros((len(promises), len(catalog)), dtype=np.float32)
    for code, one in enumerate(promises):
        selected = catalog.select(one.where)
        member[code, slice(None) if selected is None else selected.rows] = 1
    score = users @ np.asarray(catalog.embeddings).T - (prices @ member).astype(np.float32)
    listed = np.argpartition(-score, min(DEPTH, len(catalog)) - 1, axis=1)[:, :DEPTH]
    score, belongs = np.take_along_axis(score, listed, axis=1), member[binding][:, listed]

    def exposures(change: Floats) -> Floats:
        """Return (T, binding) the exposures in each request, after a change of the prices."""
        moved = score - np.tensordot(change.astype(np.float32), belongs, axes=1)
        top = np.argpartition(-moved, k - 1, axis=1)[:, :k]
        return np.stack([np.take_along_axis(one, top, axis=1).sum(axis=1) for one in belongs], axis=1)

    step, n = STEP * float(np.median(np.abs(prices[binding]))), len(binding)
    effects = np.empty((n, n))
    for code, change in enumerate(step * np.eye(n)):
        effects[code] = (exposures(-change).mean(axis=0) - exposures(change).mean(axis=0)) / (2 * step)
    reaction, noise = (effects + effects.T) / 2, np.cov(exposures(np.zeros(n)), rowvar=False).reshape(n, n)
    values, vectors = np.linalg.eigh(reaction)
    values = np.maximum(values, 1e-3 * values.max())  # the rest is noise of the measurement
    trace = float((np.einsum("ij,ik,kj->j", vectors, noise, vectors) / values).sum())
    harmonic = float((1 / np.arange(1, len(users) + 1)).sum())
    return 1 + trace / 2 * harmonic / best.cost
