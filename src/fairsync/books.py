r"""The books of a horizon: what was handed out, what came back, and the prices that follow from it.

Requests are handed out in *leases*: so many requests, the prices to search under, and where the horizon stands. What
came of a lease is *settled*. Between the two, nobody knows; the books assume the worst, that a lease brings no missing
exposure at all. So with R requests of the horizon neither settled nor leased and :math:`D_g` exposures missing from
what is settled, a lease of n may be out beside others only if

.. math::  D_g \le (R - n) \, c_g \text{ for every group } g, \qquad \sum_g D_g \le (R - n) \, K

Otherwise it has to wait until it is the only one, and then the guard keeps the floors within it
(:mod:`fairsync.guard`). Hence the floors hold for any number of front ends, however stale their prices; what
staleness costs is relevance. One front end alone never waits, and its prices change exactly every ``batch_size``
requests.

A lease that was given back, or that expired, leaves things as if it had never been: its requests return to R, which
makes the condition no harder. If the answer comes after all, its exposures count, and its requests do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync import guard
from fairsync.errors import InvalidInputError
from fairsync.floors import check_feasible, group_caps, resolve_floors
from fairsync.inputs import check_k, check_positive
from fairsync.ledger import Standing
from fairsync.policies import Feedback, Sample, Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.floors import Floors
    from fairsync.ledger import Entry
    from fairsync.policies import Policy

# Of a very long batch only what can still matter is kept.
_MOST_SAMPLES = 512
# An answer to a lease that was lost longer ago than so many others is taken for a repetition.
_MOST_LOST = 10_000


def make_terms(catalog: Catalog, k: int, floors: Floors, horizon: int, batch_size: int) -> Terms:
    """Return what was promised, if it can be kept at all.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> make_terms(Catalog(np.eye(3), ["a", "b", "b"]), k=2, floors=5, horizon=10, batch_size=4).caps.tolist()
    [1, 2]
    """
    k, horizon = check_k(k, catalog), check_positive(horizon, "horizon")
    resolved = resolve_floors(floors, catalog)
    check_feasible(resolved, catalog, k, horizon)
    return Terms(resolved, group_caps(catalog, k), k, horizon, check_positive(batch_size, "batch_size"))


def check_standing(terms: Terms, policy: Policy, standing: Standing) -> None:
    """Refuse a ledger of another catalog, and floors that can no longer be met in the horizon under way."""
    if len(standing.exposures) != len(terms.floors):
        raise InvalidInputError(
            f"The ledger counts {len(standing.exposures)} groups, the catalog has {len(terms.floors)}:"
            " it belongs to another catalog."
        )
    left = terms.horizon - standing.requests
    missing = np.maximum(terms.floors - standing.exposures, 0)
    if left < 0 or (left > 0 and policy.keeps_floors and not guard.is_safe(missing, left, terms)):
        raise InvalidInputError(
            f"The horizon has had {standing.requests} requests and misses {int(missing.sum())} exposures: the"
            f" floors cannot be met by request {terms.horizon}. Lower them, lengthen the horizon, or start with a"
            " new ledger."
        )


@dataclass(frozen=True)
class Lease:
    """Requests handed out, with all that is needed to answer them.

    Attributes
    ----------
    number : int
        Of this lease.
    requests : int
        How many.
    prices : numpy.ndarray
        (G,) to search under.
    missing : numpy.ndarray
        (G,) exposures still missing, as far as is known.
    left : int
        Requests of the horizon from these on, leaving out what others were given.
    lookahead : int
        By how much lists should exceed k.
    watched : bool
        Whether the policy wants a sample of them.
    """

    number: int
    requests: int
    prices: NDArray[np.float64]
    missing: NDArray[np.int64]
    left: int
    lookahead: int
    watched: bool


@dataclass(frozen=True)
class Books:
    """Where things stand. Books are never changed, only replaced: what fails leaves no trace.

    Attributes
    ----------
    policy_state, prices
        Of the policy.
    standing : Standing
        Of the horizon, as far as it is settled.
    counts, requests, samples
        Of the batch under way.
    opens_horizon : bool
        Whether counts start anew with what is settled next.
    out : dict
        Requests of each lease that is neither settled nor given back, by its number.
    lost : tuple of int
        Leases that were given back or expired, the latest: an answer may yet come.
    issued : int
        Leases so far.
    """

    policy_state: Any
    prices: NDArray[np.float64]
    standing: Standing
    counts: NDArray[np.int64]
    requests: int = 0
    samples: tuple[Sample, ...] = ()
    opens_horizon: bool = False
    out: Mapping[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    issued: int = 0

    @classmethod
    def open(cls, terms: Terms, policy: Policy, standing: Standing) -> Books:
        """Return the books of a horizon that stands there, if it can be gone on with."""
        check_standing(terms, policy, standing)
        state = policy.start(terms)
        return cls(state, policy.prices(state), standing, np.zeros_like(terms.floors))

    def lease(self, terms: Terms, policy: Policy, n: int) -> tuple[Books, Lease] | None:
        """Hand out up to n requests; None if that has to wait for leases that are out.

        Never more than the batch or the horizon has left, so that prices change, and counts start anew, where they
        should.
        """
        given = sum(self.out.values())
        if given and self.standing.requests + given == terms.horizon:
            return None  # the next horizon begins when this one is settled
        books = self._turned(terms, policy)
        left = terms.horizon - books.standing.requests - given
        size = min(n, terms.batch_size - (books.requests + given) % terms.batch_size, left)
        missing = np.maximum(terms.floors - books.standing.exposures, 0)
        if given and policy.keeps_floors and not guard.is_safe(missing, left - size, terms):
            return None
        number = books.issued + 1
        lease = Lease(
            number,
            size,
            books.prices,
            missing,
            left,
            policy.lookahead(books.policy_state, terms.k),
            policy.watches(books.policy_state),
        )
        return replace(books, out={**books.out, number: size}, issued=number), lease

    def settle(self, policy: Policy, number: int, entry: Entry, sample: Sample | None) -> tuple[Books, Entry] | None:
        """Write down what came of a lease; return the entry as the ledger should have it.

        None if that was done before: whoever is not sure may say it again.
        """
        if number in self.lost:  # others were given its requests
            entry = replace(entry, requests=0)
        elif number not in self.out:
            return None
        entry = replace(entry, opens_horizon=self.opens_horizon)
        samples = () if sample is None else (*self.samples, sample)
        books = replace(
            self,
            standing=self.standing.after(entry),
            counts=self.counts + entry.counts,
            requests=self.requests + entry.requests,
            samples=samples if len(samples) < _MOST_SAMPLES else (Sample.join(samples, keep=policy.memory),),
            opens_horizon=False,
            out={other: size for other, size in self.out.items() if other != number},
            lost=tuple(other for other in self.lost if other != number),
        )
        return books, entry

    def give_back(self, number: int) -> Books:
        """Take a lease back that will hardly be answered."""
        if number not in self.out:
            return self
        out = {other: size for other, size in self.out.items() if other != number}
        return replace(self, out=out, lost=(*self.lost, number)[-_MOST_LOST:])

    def _turned(self, terms: Terms, policy: Policy) -> Books:
        """Open a new horizon, or a new batch, if the last one is over."""
        over = self.standing.requests == terms.horizon
        if not over and self.requests < terms.batch_size:
            return self
        standing = Standing.nothing(len(terms.floors)) if over else self.standing
        left = terms.horizon - standing.requests
        sample = Sample.join(self.samples, keep=policy.memory) if self.samples else None
        feedback = Feedback(self.requests, self.counts, standing.exposures, left, sample)
        state = policy.step(self.policy_state, terms, feedback)
        return replace(
            self,
            policy_state=state,
            prices=policy.prices(state),
            standing=standing,
            counts=np.zeros_like(terms.floors),
            requests=0,
            samples=(),
            opens_horizon=over or self.opens_horizon,
        )
