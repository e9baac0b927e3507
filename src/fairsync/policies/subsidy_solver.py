"""The subsidies that give a sample of requests the wanted exposures: Newton's method on the dual."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairsync.catalog.atoms import Membership
from fairsync.policies.base import Floats, Sample

# An entry is near the cut (the k-th best score) within this share of a list's range, its best relevance minus its last.
_BAND = 0.1
# The weight of the prior that a group needs no subsidy, in requests: one or two requests are mostly noise.
_DOUBT = 32.0
# The same where promises overlap and the sample is small: an item has several multipliers, each pulled towards zero.
_SHARED_DOUBT = 8.0
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
        (P,) >= 0, or <= 0 for a promise that has only a cap: then it is a charge.
    slopes : numpy.ndarray
        (P,) exposures per request gained by one more unit of subsidy.
    ceiling : numpy.ndarray
        (P,) the highest subsidies that can be judged by lists of the sample's depth.
    longest_step : float
        The largest change of a subsidy for which the slopes are valid.
    bottom : numpy.ndarray or None
        (P,) the highest charges that can be judged, as negative subsidies; None if no promise has a cap.
    """

    subsidies: Floats
    slopes: Floats
    ceiling: Floats
    longest_step: float
    bottom: Floats | None = None


def solve_subsidies(
    sample: Sample,
    target: Floats,
    start: Floats,
    k: int,
    *,
    newest: int,
    iterations: int,
    listed: Floats | None = None,
    limit: Floats | None = None,
    membership: Membership | None = None,
    highest: Floats | None = None,
) -> Solution:
    r"""Find subsidies under which the sample's requests give each promise its target of exposures.

    They minimise the sample's dual plus a regularisation, worth c requests, that fades as the sample grows,

    .. math::  \sum_s \mathrm{TopK}(r_s + M^T \lambda) - n \sum_p (\rho_p \lambda_p^+ - \beta_p \lambda_p^-)
               + \tfrac12 \, c \, \bar{h} \sum_p \lambda_p^2

    whose gradient is "counts minus wanted counts" and whose curvature is how densely a promise's items lie at the cut
    (:math:`\bar h` is that density for a typical promise). A floor :math:`\rho_p` has :math:`\lambda_p \ge 0`, a cap
    :math:`\beta_p` has :math:`\lambda_p \le 0`, and a promise with both has one multiplier of either sign.

    If every item belongs to one promise, the coupling is weak, since each takes its slots from all the others: a
    diagonal Newton step, shortened when it does not help, converges in a handful. Where promises overlap, an entry near
    the cut counts for each of its promises as often as it has promises. These sums over rows of the Hessian bound the
    curvature in every direction, so that promises that share items do not correct the same lack twice.

    Parameters
    ----------
    sample
        Lists of n requests.
    target
        (P,) wanted exposures per request.
    start
        (P,) subsidies to start from.
    k
        Candidates per request.
    newest
        The number of last rows from which the depth of the lists is measured.
    iterations
        The most Newton steps.
    listed
        (P,) the subsidies under which those rows were made. Defaults to ``start``. If lists come back late, subsidies
        must not rise beyond what the lists have shown; else they would rise several times before the first effect is
        seen.
    limit
        (P,) the most exposures per request, inf where a promise has no cap; None if none has one.
    membership
        The promises of each atom, whose codes are the groups of the sample; None if promise p is atom p.
    highest
        (P,) the highest subsidies, inf where there is no limit; None if there is none.
    """
    if highest is not None:
        start = np.minimum(start, highest)
    n, width = sample.groups.shape
    if membership is not None:
        sample, membership = _among_listed(sample, membership)
    wanted, needy = target * n, target > 0
    most = None if limit is None else limit * n
    if limit is not None:
        needy = needy | np.isfinite(limit)
    sharing = None if membership is None else np.maximum(membership.atom_prices(needy.astype(np.float64)), 1.0)
    reach = sample.relevance.max(axis=1) - _lowest(sample.relevance)
    # If all relevance is equal, any positive width will do.
    widest = band = _BAND * _median(reach) or float(reach.max()) or 1.0
    prior = _DOUBT if membership is None else min(max(_SHARED_DOUBT, n / 16), _DOUBT)
    shorten, least = 1.0, np.inf
    subsidies = best = start
    slopes = start
    # A list does not show which items of a promise would come next beyond its depth.
    latest = Sample(sample.groups[-newest:], sample.relevance[-newest:])
    listed = start if listed is None else listed
    score = latest.relevance + _bonus(listed, membership).take(latest.groups)
    ordered = np.sort(score, axis=1)
    depth = float((ordered[:, width - k] - _lowest(ordered)).mean())
    ceiling = np.maximum(start, listed + depth)
    if highest is not None:
        ceiling = np.minimum(ceiling, highest)
    bottom = None if limit is None else np.where(np.isfinite(limit), np.minimum(start, listed - depth), 0.0)
    for iteration in range(iterations + 1):
        counts, near = _count_around_cut(sample, _bonus(subsidies, membership), k, band)
        crowd = near
        if membership is not None and sharing is not None:
            counts, near, crowd = membership.sums(counts), membership.sums(near), membership.sums(near * sharing)
        density, together = np.maximum(near, 1.0) / (2 * band), np.maximum(crowd, 1.0) / (2 * band)
        doubt = prior / n * min(1.0, _FADES / n) * (float(density[needy].mean()) if needy.any() else 1.0)
        gradient = _surplus(counts, wanted, most, subsidies) + doubt * subsidies
        excess = float(np.abs(np.where(subsidies != 0, gradient, _of_zero(gradient, most))).sum())
        if excess < least:
            least, best, slopes = excess, subsidies, (density + doubt) / n
        else:
            shorten *= 0.6
            band = max(0.8 * band, 0.03 * widest)
        enough = 0.01 * (wanted.sum() if most is None else wanted.sum() + most[subsidies < 0].sum())
        if iteration == iterations or excess <= enough:
            break
        longest = _LONGEST_STEP * band
        step = np.clip(-gradient / (together + doubt), -longest, longest)
        if bottom is None:
            subsidies = np.clip(subsidies + shorten * step, 0.0, ceiling)
        else:  # a multiplier does not change its sign in one step
            lowest, highest = np.where(subsidies > 0, 0.0, bottom), np.where(subsidies < 0, 0.0, ceiling)
            subsidies = np.clip(subsidies + shorten * step, lowest, highest)
    return Solution(best, slopes, ceiling, _LONGEST_STEP * widest, bottom)


def _median(values: npt.NDArray[np.float32]) -> float:
    """Return the median; `numpy.median` takes ten times as long, which is a tenth of a solve.

    Examples
    --------
    >>> _median(np.array([4, 1, 2], dtype=np.float32)), _median(np.array([4, 1, 2, 8], dtype=np.float32))
    (2.0, 3.0)
    """
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _lowest(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the lowest value of each row, without -inf, which stands for no entry."""
    lowest: npt.NDArray[np.float32] = values.min(axis=1)
    if lowest.min(initial=0.0) == -np.inf:
        lowest = np.where(values == -np.inf, np.inf, values).min(axis=1)
    return lowest


def _surplus(counts: Floats, wanted: Floats, most: Floats | None, subsidies: Floats) -> Floats:
    """Return (P,) what the counts have more than is wanted; with caps, negative or positive only as far as it counts.

    A promise with a subsidy is compared with its floor, one with a charge with its cap, the others with both.
    """
    if most is None:
        return counts - wanted
    between = np.minimum(np.maximum(counts, wanted), most)
    aim = np.where(subsidies > 0, wanted, np.where(subsidies < 0, most, between))
    surplus: Floats = counts - aim
    return surplus


def _of_zero(gradient: Floats, most: Floats | None) -> Floats:
    """Return (P,) the part of the gradient that would move multipliers that are zero."""
    return np.minimum(gradient, 0) if most is None else gradient


def _bonus(subsidies: Floats, membership: Membership | None) -> npt.NDArray[np.float32]:
    """Return (A,) the subsidy of each atom."""
    return (subsidies if membership is None else membership.atom_prices(subsidies)).astype(np.float32)


def _among_listed(sample: Sample, membership: Membership) -> tuple[Sample, Membership]:
    """Return the sample and the membership with new codes for the atoms that the sample holds: often few of many."""
    is_listed = np.zeros(membership.n_atoms, dtype=bool)
    is_listed[sample.groups] = True
    atoms = np.flatnonzero(is_listed)
    codes = np.empty(membership.n_atoms, dtype=np.intp)
    codes[atoms] = np.arange(len(atoms))
    at, promises = membership.expand(atoms)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(atoms)))])
    return (
        Sample(codes[sample.groups], sample.relevance, sample.prices),
        Membership(membership.n_promises, promises, offsets),
    )


def _count_around_cut(sample: Sample, bonus: npt.NDArray[np.float32], k: int, band: float) -> tuple[Floats, Floats]:
    """Return (A,) the entries that these subsidies of atoms would choose, and those within a band around the cut."""
    width, n_groups = sample.groups.shape[1], len(bonus)
    counts, near = np.zeros(n_groups), np.zeros(n_groups)
    for start in range(0, len(sample), _ROWS):
        groups = sample.groups[start : start + _ROWS]
        score = bonus.take(groups, mode="clip")  # no code is out of range, and to check that takes as long again
        score += sample.relevance[start : start + _ROWS]
        score -= np.sort(score, axis=1)[:, width - k, None]  # numpy sorts short rows faster than it partitions them
        counts += np.bincount(groups[score >= 0], minlength=n_groups)
        near += np.bincount(groups[np.abs(score, out=score) <= band], minlength=n_groups)
    return counts, near


def exposure_variances(sample: Sample, subsidies: Floats, k: int, membership: Membership | None = None) -> Floats:
    """Return (P,) the variance of each promise's exposures in one request, over the requests of the sample."""
    n, width = sample.groups.shape
    n_promises = len(subsidies)
    if membership is not None:
        sample, membership = _among_listed(sample, membership)
    score = sample.relevance + _bonus(subsidies, membership).take(sample.groups)
    chosen = score >= np.partition(score, width - k, axis=1)[:, width - k, None]
    rows, codes = np.nonzero(chosen)[0], sample.groups[chosen]
    if membership is not None:
        at, codes = membership.expand(codes)
        rows = rows[at]
    cell, count = np.unique(rows * n_promises + codes, return_counts=True)
    mean = np.bincount(cell % n_promises, weights=count, minlength=n_promises) / n
    square = np.bincount(cell % n_promises, weights=count.astype(np.float64) ** 2, minlength=n_promises) / n
    variances: Floats = np.maximum(square - mean**2, 0.0)
    return variances
