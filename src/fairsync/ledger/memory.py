"""A ledger in memory: fast, and lost with its process."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fairsync.closing import Closable
from fairsync.errors import RepeatedRequestError
from fairsync.ledger.base import MAX_ANSWERS, MAX_KEYS, Entry, Totals


class MemoryLedger(Closable):
    """A ledger that keeps the record in memory.

    It can be given to one retriever or coordinator after another, and it can be pickled and copied.

    Examples
    --------
    >>> import numpy as np
    >>> ledger = MemoryLedger(n_groups=2)
    >>> ledger.record([Entry(np.array([1, 1]), 1, 0.5, 0.0), Entry(np.array([0, 2]), 1, 0.7, 0.1)])
    True
    >>> ledger.totals().exposures.tolist()
    [1, 3]
    >>> ledger.record([Entry(np.array([2, 0]), 1, 0.9, 0.0, opens_horizon=True)])
    True
    >>> ledger.totals().exposures.tolist(), [past.exposures.tolist() for past in ledger.past()]
    ([2, 0], [[1, 3]])
    """

    def __init__(self, n_groups: int) -> None:
        # One tuple, so that an interrupt cannot leave one of the two updated.
        self._record: tuple[Totals, tuple[Totals, ...]] = (Totals.zero(n_groups), ())
        self._n_groups = n_groups
        self._keys: dict[str, None] = {}
        self._answers: dict[str, bytes] = {}
        self._expired: dict[str, bytes] = {}  # empty answers to requests whose answer is no longer saved
        self._saved: dict[str, bytes] = {}

    def totals(self) -> Totals:
        """Return the totals of the horizon under way."""
        return self._record[0]

    def past(self) -> Sequence[Totals]:
        """Return the totals of the horizons before it, oldest first."""
        return self._record[1]

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries, unless entries were recorded under this idempotency key before."""
        if key in self._keys:
            return False
        answers = answers or {}
        repeated = [request for request in answers if self.answer(request) is not None]
        if repeated:
            raise RepeatedRequestError(repeated)
        if key is not None:
            self._keys[key] = None
            _drop_oldest(self._keys, MAX_KEYS)
        self._answers.update(answers)
        self._expired.update(dict.fromkeys(_drop_oldest(self._answers, MAX_ANSWERS), b""))
        _drop_oldest(self._expired, MAX_KEYS)
        totals, past = self._record
        for entry in entries:
            if entry.opens_horizon:
                past = (*past, totals)
                totals = Totals.zero(self._n_groups, entry.began)
            totals = totals.after(entry)
        self._record = (totals, past)
        return True

    def answer(self, request_id: str) -> bytes | None:
        """Return the saved answer to a request; empty if it is too old to be saved still, None if there was none."""
        return self._answers.get(request_id, self._expired.get(request_id))

    def grow(self, n_groups: int) -> None:
        """Add groups with zero exposures."""
        totals, past = self._record
        self._record = (totals.grown(n_groups), tuple(one.grown(n_groups) for one in past))
        self._n_groups = n_groups

    def save(self, name: str, value: bytes) -> None:
        """Save a value beside the record."""
        self._saved[name] = value

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        return self._saved.get(name)

    def close(self) -> None:
        """Do nothing: there is nothing to release. The record lives as long as this object, and may be used again."""


def _drop_oldest(latest: dict[str, Any], limit: int) -> list[str]:
    """Delete the oldest keys beyond a limit, and return them."""
    dropped = list(itertools.islice(latest, max(len(latest) - limit, 0)))
    for key in dropped:
        del latest[key]
    return dropped
