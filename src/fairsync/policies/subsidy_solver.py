"""The subsidies that give a sample of requests the wanted exposures: Newton's method on the dual."""

from dataclasses import dataclass

import numpy as np

from fairsync.policies.base import Floats, Sample

# An entry is near the cut (the k-th best score) within this share of a list's range, its best relevance minus its last.
_BAND = 0.1
# The weight of the prior that a group needs no subsidy, in requests: one or two requests are mostly noise.
_DOUBT = 32.0
# From this many requests on, the weight of the prior falls.
_FADES = 512
# A step is at most this many bands: the slope is not valid further away.
_LONGEST_STEP = 6.0
# Rows of a sample that are processed together, so that intermediate results stay in cache.
_ROWS = 256


@dataclass(frozen=True)
class Solution:
    """Subsidies that give a sample the wanted exposures, with the slopes and limits around them.

    Attributes
    ----------
    subsidies : numpy.ndarray
        (G,) >= 0.
    slopes : numpy.ndarray
        (G,) exposures per request gained by one more unit of subsidy.
    ceiling : numpy.ndarray
        (G,) the highest subsidies that can be judged by lists of the sample's depth.
    longest_step : float
        The largest change of a subsidy for which the slopes are valid.
    """

    subsidies: Floats
    slopes: Floats
    ceiling: Floats
    longest_step: float


def solve_subsidies(
    sample: Sample,
    target: Floats,
    start: Floats,
    k: int,
    *,
    newest: int,
    iterations: int,
    listed: Floats | None = None,
) -> Solution:
    r"""Find subsidies under which the sample's requests give each group its target of exposures.

    They minimise the sample's dual plus a regularisation, worth c requests, that fades as the sample grows,

    .. math::  \sum_s \mathrm{TopK}(r_s + \lambda) - n \sum_g \rho_g \lambda_g
               + \tfrac12 \, c \, \bar{h} \sum_g \lambda_g^2, \qquad \lambda \ge 0

    whose gradient is "counts minus wanted counts" and whose curvature is how densely a group's items lie at the cut
    (:math:`\bar h` is that density for a typical group). The coupling between groups is weak, since each takes its
    slots from all the others: a diagonal Newton step, shortened when it does not help, converges in a handful.

    Parameters
    ----------
    sample
        Lists of n requests.
    target
        (G,) wanted exposures per request.
    start
        (G,) subsidies to start from.
    k
        Candidates per request.
    newest
        The number of last rows from which the depth of the lists is measured.
    iterations
        The most Newton steps.
    listed
        (G,) the subsidies under which those rows were made. Defaults to ``start``. If lists come back late, subsidies
        must not rise beyond what the lists have shown; else they would rise several times before the first effect is
        seen.
    """
    n, width = sample.groups.shape
    wanted, needy = target * n, target > 0
    reach = sample.relevance.max(axis=1) - sample.relevance.min(axis=1)
    # If all relevance is equal, any positive width will do.
    widest = band = _BAND * float(np.median(reach)) or float(reach.max()) or 1.0
    shorten, least = 1.0, np.inf
    subsidies = best = start
    slopes = start
    # A list does not show which items of a group would come next beyond its depth.
    latest = Sample(sample.groups[-newest:], sample.relevance[-newest:])
    listed = start if listed is None else listed
    score = latest.relevance + listed.astype(np.float32).take(latest.groups)
    ordered = np.sort(score, axis=1)
    depth = float((ordered[:, width - k] - ordered[:, 0]).mean())
    ceiling = np.maximum(start, listed + depth)
    for iteration in range(iterations + 1):
        counts, near = _count_around_cut(sample, subsidies, k, band)
        density = np.maximum(near, 1.0) / (2 * band)
        doubt = _DOUBT / n * min(1.0, _FADES / n) * (float(density[needy].mean()) if needy.any() else 1.0)
        gradient = counts - wanted + doubt * subsidies
        excess = float(np.abs(np.where(subsidies > 0, gradient, np.minimum(gradient, 0))).sum())
        if excess < least:
            least, best, slopes = excess, subsidies, (density + doubt) / n
        else:
            shorten *= 0.6
            band = max(0.8 * band, 0.03 * widest)
        if iteration == iterations or excess <= 0.01 * wanted.sum():
            break
        longest = _LONGEST_STEP * band
        step = np.clip(-gradient / (density + doubt), -longest, longest)
        subsidies = np.clip(subsidies + shorten * step, 0.0, ceiling)
    return Solution(best, slopes, ceiling, _LONGEST_STEP * widest)


def _count_around_cut(sample: Sample, subsidies: Floats, k: int, band: float) -> tuple[Floats, Floats]:
    """Return (G,) the entries that the subsidies would choose, and those within a band around the cut."""
    width, n_groups = sample.groups.shape[1], len(subsidies)
    bonus = subsidies.astype(np.float32)
    counts, near = np.zeros(n_groups), np.zeros(n_groups)
    for start in range(0, len(sample), _ROWS):
        groups = sample.groups[start : start + _ROWS]
        score = bonus.take(groups)
        score += sample.relevance[start : start + _ROWS]
        score -= np.sort(score, axis=1)[:, width - k, None]  # numpy sorts short rows faster than it partitions them
        counts += np.bincount(groups[score >= 0], minlength=n_groups)
        near += np.bincount(groups[np.abs(score, out=score) <= band], minlength=n_groups)
    return counts, near


def exposure_variances(sample: Sample, subsidies: Floats, k: int) -> Floats:
    """Return (G,) the variance of each group's exposures in one request, over the requests of the sample."""
    n, width = sample.groups.shape
    n_groups = len(subsidies)
    score = sample.relevance + subsidies.astype(np.float32).take(sample.groups)
    chosen = score >= np.partition(score, width - k, axis=1)[:, width - k, None]
    cell, count = np.unique(np.nonzero(chosen)[0] * n_groups + sample.groups[chosen], return_counts=True)
    mean = np.bincount(cell % n_groups, weights=count, minlength=n_groups) / n
    square = np.bincount(cell % n_groups, weights=count.astype(np.float64) ** 2, minlength=n_groups) / n
    variances: Floats = np.maximum(square - mean**2, 0.0)
    return variances
