"""The ledger of one process: as fast as can be, and gone with the process."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairsync.errors import RepeatedRequestError
from fairsync.ledger.base import ANSWERS_KEPT, KEYS_KEPT, Entry, Totals


class MemoryLedger:
    """Keeps the record in memory.

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
        # One reference to both, so that an interrupt cannot come between them.
        self._record: tuple[Totals, tuple[Totals, ...]] = (Totals.nothing(n_groups), ())
        self._n_groups = n_groups
        self._keys: dict[str, None] = {}
        self._answers: dict[str, bytes] = {}
        self._answered: dict[str, bytes] = {}  # too long ago for the answer to be kept
        self._kept: dict[str, bytes] = {}

    def totals(self) -> Totals:
        """Return where the present horizon stands."""
        return self._record[0]

    def past(self) -> Sequence[Totals]:
        """Return the standings at the end of the horizons before it, oldest first."""
        return self._record[1]

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries, unless that was done before under this key."""
        if key in self._keys:
            return False
        answers = answers or {}
        repeated = [request for request in answers if self.answer(request) is not None]
        if repeated:
            raise RepeatedRequestError(repeated)
        if key is not None:
            self._keys[key] = None
            _forget(self._keys, KEYS_KEPT)
        self._answers.update(answers)
        for request in list(self._answers)[: -ANSWERS_KEPT or None] if len(self._answers) > ANSWERS_KEPT else ():
            self._answers.pop(request)
            self._answered[request] = b""
        _forget(self._answered, KEYS_KEPT)
        totals, past = self._record
        for entry in entries:
            if entry.opens_horizon:
                past = (*past, totals)
                totals = Totals.nothing(self._n_groups, entry.began)
            totals = totals.after(entry)
        self._record = (totals, past)
        return True

    def answer(self, request_id: str) -> bytes | None:
        """Return what was answered to a request; empty if that is too long ago to be kept, None if nothing was."""
        return self._answers.get(request_id, self._answered.get(request_id))

    def grow(self, n_groups: int) -> None:
        """Go on with more groups."""
        totals, past = self._record
        self._record = (totals.grown(n_groups), tuple(one.grown(n_groups) for one in past))
        self._n_groups = n_groups

    def save(self, name: str, value: bytes) -> None:
        """Keep something beside the record."""
        self._kept[name] = value

    def load(self, name: str) -> bytes | None:
        """Return what is kept under this name."""
        return self._kept.get(name)


def _forget(latest: dict[str, Any], most: int) -> None:
    while len(latest) > most:
        del latest[next(iter(latest))]
