"""The interface of every policy: promises and counts in, one price per promise out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog.atoms import Membership
from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


NO_CAP = 2**62
"""The cap of a promise that has none."""


@dataclass(frozen=True)
class Terms:
    """The promises as arrays: floors, caps, capacities, candidates per request, horizon and batch size.

    Arrays by promise have P entries, arrays by atom A. If every item belongs to one promise, an atom is the group of
    items of one promise: there is no membership, and P = A = G.

    Attributes
    ----------
    floors : numpy.ndarray
        (P,) minimum exposures of each promise in the horizon.
    capacities : numpy.ndarray
        (A,) the exposures of an atom that any request can surely have: min(k, items that serve its plan less those that
        a request may exclude).
    k : int
        Candidates per request.
    horizon : int
        Requests over which the floors are spread.
    batch_size : int
        Requests between two price changes.
    auto_restart : bool
        Whether a new horizon begins automatically after ``horizon`` requests. Otherwise ``horizon`` is the expected
        number of requests, and the caller begins the next horizon.
    max_exclude : int
        The most items that a request excludes, as declared. The floors are certain if no request excludes more.
    caps : numpy.ndarray or None
        (P,) maximum exposures of each promise in the horizon, `NO_CAP` where it has none; None if none has one.
    membership : Membership or None
        The promises of each atom; None if promise p is atom p.
    list_limits : numpy.ndarray or None
        (P,) the most items of each promise in one list, k where it has no limit; None if no promise limits it.
    certain : numpy.ndarray or None
        (P,) the floors that are certain although requests exclude items; None if all are.
    certificate : numpy.ndarray or None
        (A,) a plan for a whole horizon that keeps all promises that are certain, as far as they do not give way; None
        without membership.
    priorities : numpy.ndarray or None
        (P,) the priority of each promise, 1 first, and 0 for what never gives way; None if all are 1.
    max_prices : numpy.ndarray or None
        (P,) the highest subsidy of each promise in units of the mean relevance of the last candidate, inf where it has
        no limit; None if none has one.
    home : numpy.ndarray or None
        (A,) for each atom the one whose plan its items serve: another one for atoms that are too small beside
        exclusions to be planned by themselves; see :mod:`fairsync.promises.home_atoms`. None if each is its own.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> both = Membership.of([(0,), (1,), (0, 1)], 2)
    >>> terms = Terms(np.array([5, 5]), np.array([2, 2, 1]), k=2, horizon=10, batch_size=1, membership=both)
    >>> terms.atom_prices(np.array([-1.0, -2.0])).tolist(), terms.exposures(np.array([1, 0, 4])).tolist()
    ([-1.0, -2.0, -3.0], [5, 4])
    """

    floors: Counts
    capacities: Counts
    k: int
    horizon: int
    batch_size: int
    auto_restart: bool = True
    max_exclude: int = 0
    caps: Counts | None = None
    membership: Membership | None = None
    list_limits: Counts | None = None
    certain: npt.NDArray[np.bool_] | None = None
    certificate: Counts | None = None
    priorities: Counts | None = None
    max_prices: Floats | None = None
    home: Counts | None = None

    @property
    def order(self) -> Counts:
        """(P,) the priority of each promise."""
        return np.ones(len(self.floors), dtype=np.int64) if self.priorities is None else self.priorities

    @property
    def n_atoms(self) -> int:
        """Number of atoms, A."""
        return len(self.capacities)

    @cached_property
    def has_floor(self) -> npt.NDArray[np.bool_]:
        """(A,) whether an atom belongs to a promise with a floor."""
        has: npt.NDArray[np.bool_] = self.floors > 0
        return has if self.membership is None else self.membership.in_any(has)

    @cached_property
    def limits_of_any_list(self) -> Counts | None:
        """(P,) the most items of each promise in a list that may have more than k items, `NO_CAP` without a limit.

        Examples
        --------
        >>> terms = Terms(np.zeros(2), np.array([9, 9]), k=5, horizon=9, batch_size=1, list_limits=np.array([2, 5]))
        >>> [int(limit) if limit < NO_CAP else None for limit in terms.limits_of_any_list]
        [2, None]
        """
        return None if self.list_limits is None else np.where(self.list_limits < self.k, self.list_limits, NO_CAP)

    @cached_property
    def least_capacity(self) -> int:
        """The least exposures that one request can surely have of any atom that it can surely show."""
        return int(self.capacities.min(initial=self.k, where=self.capacities > 0))

    @cached_property
    def never_sure(self) -> Counts:
        """The atoms of which a request can surely show nothing."""
        return np.flatnonzero(self.capacities == 0)

    @cached_property
    def sure_in_list(self) -> Counts:
        """(P,) the most exposures of each promise that one request can surely have."""
        most: Counts = np.minimum(self.exposures(self.capacities), self.k)
        return most

    def atom_prices(self, prices: Floats) -> Floats:
        """Return (A,) the price of each atom: the sum of the prices of its promises.

        The same array is returned until other prices are given, so that an index recognises it.
        """
        if self.membership is None:
            return prices
        for known, found in self._latest_prices:
            if known is prices:
                return found
        found = self.membership.atom_prices(prices)
        found.flags.writeable = False
        self._latest_prices[:] = [(prices, found)]
        return found

    @cached_property
    def _latest_prices(self) -> list[tuple[Floats, Floats]]:
        """The latest prices of promises that were asked for, and those of atoms."""
        return []

    def exposures(self, counts: Counts) -> Counts:
        """Return (P,) the exposures of each promise, from those of each atom."""
        return counts if self.membership is None else self.membership.exposures(counts)

    def at_home(self, sizes: Counts) -> Counts:
        """Return (A,) the number of items that serve the plan of each atom, from the number of items in it."""
        return sizes if self.home is None else sum_at_home(sizes, self.home)


def sum_at_home(sizes: Counts, home: Counts) -> Counts:
    """Return (A,) the sum of the sizes of all atoms with the same home, at the home; 0 for the others.

    Examples
    --------
    >>> sum_at_home(np.array([5, 2, 3]), np.array([0, 2, 2])).tolist()
    [5, 0, 5]
    """
    return np.bincount(home, sizes, len(home)).astype(np.int64)


def check_floors_only(terms: Terms, policy: str) -> None:
    """Refuse promises that overlap, and caps and limits per list, for a policy that knows floors of groups only.

    Examples
    --------
    >>> caps = np.array([7, NO_CAP])
    >>> terms = Terms(np.array([5, 0]), np.array([2, 2]), k=2, horizon=10, batch_size=1, caps=caps)
    >>> check_floors_only(terms, "ipw")
    Traceback (most recent call last):
        ...
    fairsync.errors.InvalidInputError: The policy 'ipw' keeps at_least for labels of one attribute, not at_most; use \
'guaranteed'.
    """
    found = {
        "promises that overlap": terms.membership,
        "at_most": terms.caps,
        "at_most_per_list": terms.list_limits,
    }
    refused = [what for what, value in found.items() if value is not None]
    if refused:
        raise InvalidInputError(
            f"The policy {policy!r} keeps at_least for labels of one attribute, not {' and '.join(refused)};"
            " use 'guaranteed'."
        )


@dataclass(frozen=True)
class Sample:
    """Candidate lists of some requests, longer than k: they show which entries other prices would let in or push out.

    A row is one request: the best ``width`` entries by relevance minus price at that time. An entry is a group and a
    relevance; it names no item, because a policy never sees one.

    Attributes
    ----------
    groups : numpy.ndarray
        (n, width) group code of each entry.
    relevance : numpy.ndarray
        (n, width) relevance of each entry without the price, minus that of the last candidate. Only differences within
        a request matter, and they would be lost to rounding next to a large common part. -inf at the end of a row for
        no entry, where fewer items than ``width`` were eligible; the first k places are never empty.
    prices : numpy.ndarray or None
        (P,) the prices under which the latest rows were made; None if these are the policy's present prices. Rows of a
        lease that was out for long do not show the effect of later prices.
    """

    groups: npt.NDArray[np.intp]
    relevance: npt.NDArray[np.float32]
    prices: Floats | None = None

    def __len__(self) -> int:
        return len(self.groups)

    @classmethod
    def join(cls, parts: Sequence["Sample"], keep: int | None = None) -> "Sample":
        """Return the last ``keep`` requests (all by default), oldest first.

        If lists differ in width, because a small catalog has changed, longer ones are cut to the shortest.
        """
        if len(parts) == 1 and keep is None:
            return parts[0]
        since = 0 if keep is None else -keep
        width = min(part.groups.shape[1] for part in parts)
        return cls(
            np.concatenate([part.groups[:, :width] for part in parts])[since:],
            np.concatenate([part.relevance[:, :width] for part in parts])[since:],
            parts[-1].prices,
        )


@dataclass(frozen=True)
class Feedback:
    """What happened since the last price change, and the totals of the horizon.

    Attributes
    ----------
    requests : int
        Requests served since the last price change.
    counts : numpy.ndarray
        (P,) exposures of each promise in those requests.
    exposures : numpy.ndarray
        (P,) exposures of each promise since the horizon began; all zero when a new horizon begins.
    remaining : int
        Requests left in the horizon.
    sample : Sample or None
        The longer lists of those requests, if the policy asked for them (``watches``).
    slots : numpy.ndarray or None
        (G,) the most exposures of each group that a request to come will show on average, as far as can be seen from
        the items that were eligible so far; None for the capacities.
    highest : numpy.ndarray or None
        (P,) the highest subsidy of each promise, inf where it has no limit; None if none has one.
    """

    requests: int
    counts: Counts
    exposures: Counts
    remaining: int
    sample: Sample | None = None
    slots: Floats | None = None
    highest: Floats | None = None


class Policy(Protocol):
    """Decides prices. A step is a pure function of a small state, so that it can run in any process.

    A policy never sees an item, a vector or an index, so every policy works with every index. Its state is immutable
    and made of numbers, arrays, tuples and the classes in ``state_classes``, so that it can be saved and sent.

    Attributes
    ----------
    name : str
        The name of the policy, as in ``FairRetriever(policy=...)``.
    keeps_floors : bool
        Whether the guard of the retriever enforces the floors where prices alone would miss them.
    memory : int
        The most requests that a sample needs to hold.
    state_classes : tuple of type, optional
        The dataclasses and named tuples that a state is made of. They are needed to load a saved state; a state of
        numbers, arrays and tuples needs none. See `fairsync.policies.serialization`.
    """

    name: str
    keeps_floors: bool
    memory: int

    def start(self, terms: Terms) -> Any:
        """Return the state before the first request."""
        ...

    def lookahead(self, state: Any, k: int) -> int:
        """Return the number of entries beyond k that the next lists should have, for policy, guard and report."""
        ...

    def watches(self, state: Any) -> bool:
        """Return whether the policy wants a sample of the next requests."""
        ...

    def prices(self, state: Any) -> Floats:
        """Return (P,) the price of each promise, subtracted from the relevance of its items; +inf masks these."""
        ...

    def step(self, state: Any, terms: Terms, feedback: Feedback) -> Any:
        """Return the state after a batch of requests."""
        ...

    def resume(self, state: Any, terms: Terms) -> Any:
        """Return the state for other terms: other floors, and possibly new groups, whose codes follow the old ones."""
        ...


class CountsOnly:
    """A policy that reads counts and no lists, and whose floors no guard enforces."""

    keeps_floors = False
    memory = 0

    def lookahead(self, state: Any, k: int) -> int:
        """Return 0: the policy reads counts only."""
        return 0

    def watches(self, state: Any) -> bool:
        """Return False: the policy reads counts only."""
        return False


class Memoryless(CountsOnly):
    """A policy without memory: its prices depend on the totals of the horizon only, and they are its state.

    The four baselines are of this kind. Each is one function, :meth:`decide`. If no group has a floor, all prices are
    zero: the paper, whose floors are all positive, leaves that case open.
    """

    name: str

    def decide(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        """Return (P,) prices from the exposures of each promise and the requests served since the horizon began."""
        raise NotImplementedError

    def start(self, terms: Terms) -> Floats:
        """Return the prices before the first request."""
        check_floors_only(terms, self.name)
        return self._prices(terms, np.zeros_like(terms.floors), 0)

    def prices(self, state: Floats) -> Floats:
        """Return the state."""
        return state

    def step(self, state: Floats, terms: Terms, feedback: Feedback) -> Floats:
        """Return the prices for the present totals, independent of the prices before."""
        return self._prices(terms, feedback.exposures, terms.horizon - feedback.remaining)

    def resume(self, state: Floats, terms: Terms) -> Floats:
        """Return the same prices until the next step, and zero for new groups."""
        check_floors_only(terms, self.name)
        return grow(state, len(terms.floors))

    def _prices(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        if not terms.floors.any():
            return np.zeros(len(terms.floors))
        return self.decide(terms, exposures, served)
