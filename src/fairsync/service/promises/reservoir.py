"""A uniform sample of the requests that were answered in the present period: reservoir sampling, algorithm L."""

from __future__ import annotations

import math
import random
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.candidates import Candidates
from fairsync.eligibility.catalog_rules import CatalogRules
from fairsync.service.promises.costs import Answered, stack_users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where

RequestRules: TypeAlias = "tuple[Any, Where | None]"
"""The ids that one request excludes, and its condition; None for none."""
# Requests in a sample.
SAMPLE = 512
# Keeps the threshold of algorithm L below one, for which log1p would be infinite.
_TINY = 1e-12


class AnswerReservoir:
    """A uniform sample of the requests of the present period that were answered from the present items.

    Each of these requests is in the sample with the same probability. A new period or a change of items empties it,
    unless only attributes change.
    Algorithm L (Li, 1994) draws how many requests to skip before the next one enters, so that most requests cost
    nothing.

    Parameters
    ----------
    size
        Requests in the sample.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.candidates import Candidates
    >>> catalog = Catalog(np.eye(2), ["a", "b"])
    >>> found = Candidates.of(catalog, np.array([[0], [1], [1]]), np.ones((3, 1)), np.ones(3))
    >>> reservoir = AnswerReservoir(size=2)
    >>> reservoir.add(catalog, 0.0, np.zeros((3, 1, 2)), found)
    >>> len(reservoir), reservoir.seen
    (2, 3)
    >>> reservoir.add(catalog, 86_400.0, np.zeros((1, 1, 2)), found.take(slice(1)))  # another day
    >>> len(reservoir)
    1
    """

    def __init__(self, size: int = SAMPLE) -> None:
        self._size, self._rng, self._lock = size, random.Random(0), threading.Lock()
        self._source: tuple[Catalog, float] | None = None
        self._kept: list[tuple[NDArray[np.floating[Any]], Candidates, RequestRules]] = []
        # Requests so far, the position of the next one that enters, and the threshold of algorithm L.
        self.seen, self._next, self._threshold = 0, 0, 1.0

    def __len__(self) -> int:
        return len(self._kept)

    def add(
        self,
        catalog: Catalog,
        period: float,
        users: NDArray[np.floating[Any]],
        found: Candidates,
        rules: Sequence[RequestRules] | None = None,
    ) -> None:
        """Offer requests to the sample.

        Parameters
        ----------
        catalog
            The items from which they were answered.
        period
            Start of the period in which they were answered.
        users
            (n, interests, d) user vectors.
        found
            Their candidates.
        rules
            What each of them excluded, and its condition; None if there were no rules.
        """
        with self._lock:
            if self._source is None or not _same_items(self._source[0], catalog) or self._source[1] != period:
                self._source, self._kept = (catalog, period), []
                self.seen, self._next, self._threshold = 0, 0, 1.0
            first, self.seen = self.seen, self.seen + len(found)
            while self._next < self.seen:
                position = self._next - first
                # Copies: a view would keep the whole batch in memory.
                its_rules = (None, None) if rules is None else rules[position]
                one = users[position].copy(), found.take(np.array([position])), its_rules
                if len(self._kept) < self._size:
                    self._kept.append(one)
                else:
                    self._kept[self._rng.randrange(self._size)] = one
                self._next += self._step()

    def answered(self, catalog: Catalog, most: int = SAMPLE) -> Answered | None:
        """Return at most `most` requests of the sample; None if they were answered from other items than these."""
        with self._lock:
            if self._source is None or not _same_items(self._source[0], catalog):
                return None
            kept = self._rng.sample(self._kept, min(most, len(self._kept)))
        users, found, rules = zip(*kept, strict=True)
        answers = Candidates.join(found)
        eligible = None
        if any(one is not None for rule in rules for one in rule):
            exclude, where = zip(*rules, strict=True)
            eligible = CatalogRules(exclude, where, catalog, len(rules), allow_empty=True).eligibility(0, len(rules))
        return Answered(stack_users(users), _rows(catalog, answers), answers.relevance, eligible)

    def _step(self) -> int:
        """Return the distance to the next request that enters.

        If each request drew a random number, the sample would be the requests with the smallest ones. The threshold is
        the largest number in the sample, and the number of requests in a row above it is geometric.
        """
        if len(self._kept) < self._size:
            return 1
        self._threshold *= math.exp(-self._rng.expovariate(self._size) - _TINY)
        return 1 + math.floor(self._rng.expovariate(-math.log1p(-self._threshold)))


def _same_items(one: Catalog, other: Catalog) -> bool:
    """Return whether two catalogs differ in attributes at most, none of which is the group."""
    return one.embeddings is other.embeddings and one.group_of is other.group_of


def _rows(catalog: Catalog, found: Candidates) -> NDArray[np.int64]:
    """Return (n, k) the rows of candidates."""
    # Answers that were loaded from the ledger have no rows.
    return found.rows if (found.rows >= 0).all() else catalog.rows_of(found.ids)
