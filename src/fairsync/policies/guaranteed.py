"""The default policy: the smallest subsidies that reach the floors, solved again as requests arrive."""

from dataclasses import dataclass, replace

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.catalog.groups import grow
from fairsync.policies.base import NO_CAP, Counts, Feedback, Floats, Sample, Terms
from fairsync.policies.subsidy_solver import Solution, exposure_variances, solve_subsidies

# None of these is a setting: they trade work for accuracy, and the same values serve every data set.
SAMPLE_SIZE = 2048  # requests in the sample; the error of a rate falls with its square root, the state grows with it
TURNOVER = 8  # solve when this fraction (1/8) of the sample is new, which keeps the work per request constant
FULL_TURNOVER = 4  # the same for large batches, whose solves are expensive, once the sample is full
SMALL_BATCH = 64  # up to here solves are frequent and each matters little; beyond, they are rare and must look ahead
SPARING = 4  # once the sample is full, one small batch in this many renews it (one large batch in two)
SPAN_OF_RESERVE = 4  # where promises overlap: batches, of 64 at least, at the end of a horizon that have a reserve
WARM_UP = 16  # requests of the first batch of a warm-up; each further one is twice as long
FIRST_ITERATIONS = 25  # Newton steps of a solve from scratch; later solves start from the last solution
MANY = 1_000  # by the clock, with more promises than this, horizons start from the prices of an earlier start


@dataclass(frozen=True)
class GuaranteedState:
    """The state of the policy.

    Attributes
    ----------
    subsidies : numpy.ndarray
        (P,) minus the prices: >= 0 for a floor, <= 0 (a charge) for a cap.
    target : numpy.ndarray
        (P,) exposures per request for which the subsidies were solved.
    solution : Solution or None
        The last solution: slopes and limits by which the subsidies follow a moving target until the next solve.
    sample : Sample or None
        The requests of the last solve.
    fresh, n_fresh : tuple of Sample, int
        The requests since then, and their number.
    seen : int
        The number of requests that the present subsidies were learnt from.
    small_batch : bool
        Whether prices change often.
    skipped : int
        Batches since the last one that was added to the sample.
    opening : numpy.ndarray or None
        (P,) subsidies for a whole horizon, with which the next horizon starts.
    variances : numpy.ndarray or None
        (P,) variance of the exposures in one request of the sample; computed when first needed.
    limit : numpy.ndarray or None
        (P,) the most exposures per request for which the charges were solved, inf where a promise has no cap; None if
        none has one.
    """

    subsidies: Floats
    target: Floats
    solution: Solution | None = None
    sample: Sample | None = None
    fresh: tuple[Sample, ...] = ()
    n_fresh: int = 0
    seen: int = 0
    small_batch: bool = True
    skipped: int = 0
    opening: Floats | None = None
    variances: Floats | None = None
    limit: Floats | None = None

    @property
    def samples_next(self) -> bool:
        """Whether the next batch is added to the sample."""
        return self.seen < SAMPLE_SIZE or self.skipped >= (SPARING - 1 if self.small_batch else 1)


class Guaranteed:
    r"""Keeps every promise at little cost in relevance, and has nothing to tune.

    With R requests left and :math:`D_p` exposures missing, the best plan for the rest solves

    .. math::  \min_{\lambda \ge 0} \; R \; \mathrm{E}\,\mathrm{TopK}(r + M^T \lambda) - \sum_p D_p \lambda_p

    The expectation is unknown and estimated on a sliding sample of past requests. So the subsidies :math:`\lambda` are
    those for which the sample would have given each promise :math:`D_p / R` exposures per request: a deficit or surplus
    so far moves the target, and the subsidies with it. A cap that has :math:`U_p` exposures left works the same way,
    with a charge where the sample would have taken more than :math:`U_p / R`.

    - A solve is a few Newton steps (:mod:`fairsync.policies.subsidy_solver`), repeated when an eighth of the sample is
      new (for large batches a quarter, once the sample is full).
      Once the sample is full, only one small batch in four renews it, or one large one in two.
    - In between, the subsidies follow the target along the slopes of the last solve.
    - Once more requests have come than the sample holds, a solve moves the subsidies only part of the way:
      the average of many solves is more accurate than the last one.
    - The last batch of a horizon cannot be corrected afterwards: its target gets one standard deviation more; where
      promises overlap, the last 256 requests do, or four batches if these are longer than 64.

    The guard of the retriever turns this into a guarantee (see :mod:`fairsync.guard`).

    Parameters
    ----------
    warm_up
        Change the first prices sooner than the batch size says: after 16 requests, after 32 more, after 64 more, and so
        on, until the batch size is reached. The first batch of a cold start has no prices, so that a long one is
        expensive. Not for deployments that cannot change prices more often.

    Examples
    --------
    >>> policy = Guaranteed(warm_up=True)
    >>> terms = Terms(np.array([5, 0]), np.array([2, 2]), k=2, horizon=9000, batch_size=512)
    >>> state = policy.start(terms)
    >>> [policy.price_batch(replace(state, seen=seen), terms) for seen in (0, 16, 48, 2048)]
    [16, 32, 64, 512]
    """

    name = "guaranteed"
    keeps_floors = True
    memory = SAMPLE_SIZE
    state_classes = (GuaranteedState, Sample, Solution)

    def __init__(self, warm_up: bool = False) -> None:
        self.warm_up = warm_up

    def price_batch(self, state: GuaranteedState, terms: Terms) -> int:
        """Return the number of requests until the next step."""
        if not self.warm_up:
            return terms.batch_size
        return min(terms.batch_size, WARM_UP + state.seen + state.n_fresh)

    def start(self, terms: Terms) -> GuaranteedState:
        """Return zero subsidies."""
        zero = np.zeros(len(terms.floors))
        return GuaranteedState(zero, zero, small_batch=terms.batch_size <= SMALL_BATCH)

    def lookahead(self, state: GuaranteedState, k: int) -> int:
        """Return the depth that a solve needs, if the next lists are added to the sample.

        Otherwise they only have to be long enough for the guard, and to compute the cost.
        """
        if not state.samples_next:
            return min(k, 16 + k // 4)
        return k + 40 if state.small_batch else 3 * k

    def watches(self, state: GuaranteedState) -> bool:
        """Return whether the next lists are added to the sample."""
        return state.samples_next

    def prices(self, state: GuaranteedState) -> Floats:
        """Return minus the subsidies."""
        return -state.subsidies

    def step(self, state: GuaranteedState, terms: Terms, feedback: Feedback) -> GuaranteedState:
        """Follow the target, and solve again if enough requests have come since the last solve."""
        state = _taking_in(_with_variances(state, terms, feedback), feedback.sample)
        target, limit = self._target(state, terms, feedback), _limit(terms, feedback)
        known = 0 if state.sample is None else len(state.sample)
        turnover = TURNOVER if state.small_batch or known < SAMPLE_SIZE else FULL_TURNOVER
        new = state.n_fresh > 0 and state.n_fresh * turnover >= known
        # The prices at the end of the last horizon were made for the groups that lagged: do not start from them. If the
        # next horizon has the same targets, those at its start are right. By the clock it has others, but with many
        # promises requests would wait too long for a solve with every plan.
        opens = feedback.remaining == terms.horizon and known + state.n_fresh > 0
        reuses = terms.auto_restart or len(target) > MANY
        if opens and state.opening is not None and not new and reuses:
            subsidies = _due(_within(state.opening, feedback.highest), target, limit)
            return replace(state, subsidies=subsidies, target=target, limit=limit)
        if opens or (new and known == 0):
            return _solved_from(
                _joined(state), target, limit, state, terms, feedback.highest, whole_horizon=opens
            )  # fmt: skip
        behind = _behind(state, feedback.sample)
        subsidies = _within(_follow(state, target, limit), feedback.highest)
        state = replace(state, subsidies=subsidies, target=target, limit=limit)
        if not new:
            return state
        sample = _joined(state)
        iterations = 1 if state.small_batch else 2  # it starts from the last solution, which is nearly right
        solution = solve_subsidies(
            sample,
            target,
            state.subsidies,
            terms.k,
            newest=state.n_fresh,
            iterations=iterations,
            listed=state.subsidies - behind,
            limit=limit,
            membership=terms.membership,
            highest=feedback.highest,
        )
        # At first the sample holds all requests so far, and the solution is used as it is. Later solves are averaged.
        seen = state.seen + state.n_fresh
        weight = 1.0 if seen <= len(sample) else min(1.0, 2 * state.n_fresh / seen)
        subsidies = state.subsidies + weight * (solution.subsidies - state.subsidies)
        return GuaranteedState(
            subsidies, target, solution, sample, seen=seen, small_batch=state.small_batch, opening=state.opening,
            limit=limit,
        )  # fmt: skip

    def calibrate(self, state: GuaranteedState, terms: Terms, feedback: Feedback) -> GuaranteedState:
        """Start from past requests, which become the sample. Called repeatedly until the prices settle."""
        if feedback.sample is None or len(feedback.sample) == 0:
            return state
        target, limit = self._target(state, terms, feedback), _limit(terms, feedback)
        sample = Sample.join((feedback.sample,), keep=SAMPLE_SIZE)
        return _solved_from(
            sample, target, limit, state, terms, feedback.highest, whole_horizon=feedback.remaining == terms.horizon
        )

    def resume(self, state: GuaranteedState, terms: Terms) -> GuaranteedState:
        """Continue from the same subsidies and sample; values that depend on the old floors are computed again."""
        n = len(terms.floors)
        subsidies = grow(state.subsidies, n)
        capped = False if terms.caps is None else terms.caps < NO_CAP
        return replace(
            state,
            subsidies=np.where((subsidies < 0) & ~np.asarray(capped), 0.0, subsidies),  # a charge ends with its cap
            target=grow(state.target, n),
            solution=None,
            opening=None,
            variances=None,
            limit=None,
        )

    @staticmethod
    def _target(state: GuaranteedState, terms: Terms, feedback: Feedback) -> Floats:
        """Return (P,) the exposures per request that each promise needs from now on."""
        missing = np.maximum(terms.floors - feedback.exposures, 0).astype(np.float64)
        left = max(feedback.remaining, 1)
        if left <= _reserve_span(terms) and state.variances is not None:
            missing += np.where(missing > 0, _reserve(state.variances, left, terms), 0.0)
        most = terms.sure_in_list.astype(np.float64)
        if feedback.slots is not None:  # a floor that will be missed must not take the slots of the others
            most = np.minimum(most, _in_one_list(terms, feedback.slots))
        if terms.certain is not None:  # the others rest on atoms of which nothing is certain: prices work for them
            most = np.where(terms.certain, most, terms.k)
        target = np.minimum(missing / left, most)
        if terms.list_limits is not None:
            target = np.minimum(target, terms.list_limits)
        # With the extra deviation the target can exceed k. It is kept just below, or no finite subsidies would reach
        # it.
        share = 0.999 * terms.k / max(float(target.sum()), 1e-12)
        if share < 1.0 and terms.membership is not None:
            share = 0.999 * terms.k / max(_fewest_slots(terms.membership, target), 1e-12)
        return np.asarray(target * min(1.0, share))


def _reserve_span(terms: Terms) -> int:
    """Return the number of last requests of a horizon whose target gets a reserve."""
    if terms.membership is None:
        return terms.batch_size
    return SPAN_OF_RESERVE * max(terms.batch_size, SMALL_BATCH)


def _reserve(variances: Floats, left: int, terms: Terms) -> Floats:
    """Return (P,) the exposures that each target gets beyond what is missing.

    Where promises overlap, the guard can only force items of single atoms, which is expensive.
    """
    if terms.membership is None:
        return np.sqrt(left * variances)
    return np.sqrt(min(left, max(terms.batch_size, SMALL_BATCH)) * variances)


def _in_one_list(terms: Terms, slots: Counts | Floats) -> Counts | Floats:
    """Return (P,) the most exposures of each promise in one list, from those of each atom."""
    if terms.membership is None:
        return slots
    return np.minimum(terms.membership.sums(slots.astype(np.float64)), terms.k)


def _fewest_slots(membership: Membership, target: Floats) -> float:
    """Return a lower bound of the slots per request that reach the target.

    A slot counts for every promise of its atom. If it pays each of them one part in the most promises that any of
    their atoms has, it pays one slot at most.
    """
    needy = (target > 0).astype(np.float64)
    sharing = np.repeat(membership.atom_prices(needy), np.diff(membership.offsets))
    most = np.ones(membership.n_promises)
    np.maximum.at(most, membership.promises, sharing)
    return float((target / most).sum())


def _limit(terms: Terms, feedback: Feedback) -> Floats | None:
    """Return (P,) the exposures per request that each cap allows from now on; None if there are no caps."""
    if terms.caps is None:
        return None
    room = np.maximum(terms.caps - feedback.exposures, 0)
    return np.where(terms.caps == NO_CAP, np.inf, room / max(feedback.remaining, 1))


def _due(subsidies: Floats, target: Floats, limit: Floats | None) -> Floats:
    """Return the subsidies that have a target, and the charges that have a limit; the others are zero."""
    if limit is None:
        return np.where(target > 0, subsidies, 0.0)
    return np.where(np.where(subsidies > 0, target > 0, np.isfinite(limit)), subsidies, 0.0)


def _within(subsidies: Floats, highest: Floats | None) -> Floats:
    """Return the subsidies, lowered to the highest that are allowed."""
    return subsidies if highest is None else np.minimum(subsidies, highest)


def _with_variances(state: GuaranteedState, terms: Terms, feedback: Feedback) -> GuaranteedState:
    """Return the state with the variances of exposures, if the next batch is the last and they are not known yet."""
    if feedback.remaining > _reserve_span(terms) or state.sample is None or state.variances is not None:
        return state
    return replace(state, variances=exposure_variances(state.sample, state.subsidies, terms.k, terms.membership))


def _taking_in(state: GuaranteedState, sample: Sample | None) -> GuaranteedState:
    """Return the state with the lists of another batch added, if there are any."""
    if sample is None:
        return replace(state, skipped=state.skipped + 1)
    return replace(state, fresh=(*state.fresh, sample), n_fresh=state.n_fresh + len(sample), skipped=0)


def _behind(state: GuaranteedState, sample: Sample | None) -> Floats | float:
    """Return how much the subsidies have risen since the lists were made; 0 unless a lease was out meanwhile."""
    if sample is None or sample.prices is None:
        return 0.0
    return np.maximum(state.subsidies + grow(sample.prices, len(state.subsidies)), 0.0)


def _joined(state: GuaranteedState) -> Sample:
    """Return the sample with the requests that came since, cut to the latest."""
    return Sample.join(state.fresh if state.sample is None else (state.sample, *state.fresh), keep=SAMPLE_SIZE)


def _solved_from(
    sample: Sample,
    target: Floats,
    limit: Floats | None,
    state: GuaranteedState,
    terms: Terms,
    highest: Floats | None,
    *,
    whole_horizon: bool,
) -> GuaranteedState:
    """Return a state whose subsidies come from this sample only, solved with all iterations."""
    n = len(sample)
    solution = solve_subsidies(
        sample, target, state.subsidies, terms.k,
        newest=n, iterations=FIRST_ITERATIONS, limit=limit, membership=terms.membership, highest=highest,
    )  # fmt: skip
    # A calibration within a horizon does not fit a whole one: the next horizon solves again.
    opening = solution.subsidies if whole_horizon else None
    return GuaranteedState(
        solution.subsidies,
        target,
        solution,
        sample,
        seen=n,
        small_batch=state.small_batch,
        opening=opening,
        limit=limit,
    )


def _follow(state: GuaranteedState, target: Floats, limit: Floats | None) -> Floats:
    """Return the subsidies moved along the last slopes to a new target; promises without a target get none."""
    if state.solution is None:
        return _due(state.subsidies, target, limit)
    solution, subsidies, longest = state.solution, state.subsidies, state.solution.longest_step
    change, lowest = target - state.target, np.zeros(1)
    if limit is not None and solution.bottom is not None and state.limit is not None:
        charged = subsidies < 0
        # A charge that is not there yet is for the next solve to decide.
        change[charged] = limit[charged] - state.limit[charged]
        lowest = np.where(charged, np.minimum(solution.bottom, subsidies), 0.0)
    step = np.minimum(np.maximum(change / solution.slopes, -longest), longest)
    highest = np.maximum(solution.ceiling, subsidies)
    if limit is not None:
        highest = np.where(subsidies < 0, 0.0, highest)
    moved = np.minimum(np.maximum(subsidies + step, lowest), highest)
    return _due(moved, target, limit)
