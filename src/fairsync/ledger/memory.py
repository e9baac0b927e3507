"""A ledger in memory: fast, and lost with its process."""

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeVar

from fairsync.closing import Closable
from fairsync.errors import InvalidInputError, RepeatedRequestError
from fairsync.ledger.audit import AuditPage, AuditRecord, chain
from fairsync.ledger.base import Entry, Totals
from fairsync.ledger.retention import Retention

T = TypeVar("T")
# Without a retention of its own, a ledger in memory takes some hundred megabytes at most.
_RETENTION = Retention(max_bytes=100_000_000, max_ids=1_000_000)


class MemoryLedger(Closable):
    """A ledger that keeps the record in memory.

    It can be given to one retriever or coordinator after another, and it can be pickled and copied.

    Parameters
    ----------
    n_groups
        Number of groups.
    retention
        How long answers and idempotency keys are saved. By default at most 100 MB of answers and a million keys.

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

    def __init__(self, n_groups: int, retention: Retention | None = None) -> None:
        if not hasattr(n_groups, "__index__"):
            raise InvalidInputError(f"a ledger counts a number of groups, got {n_groups!r:.80}.")
        # One tuple, so that an interrupt cannot leave one of the two updated.
        self._record: tuple[Totals, tuple[Totals, ...]] = (Totals.zero(n_groups), ())
        self._n_groups = n_groups
        self.retention = retention or _RETENTION
        # Keys and answers with the time at which they were recorded, oldest first.
        self._keys: dict[str, float] = {}
        self._answers: dict[str, tuple[float, bytes]] = {}
        self._expired: dict[str, None] = {}  # requests whose answer is no longer saved
        self._bytes = 0
        self._saved: dict[str, bytes] = {}
        self._audit: dict[str, str] = {}

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
        if key is not None and self.knows(key):
            return False
        repeated = list(self.answers(list(answers))) if answers else []
        if repeated:
            raise RepeatedRequestError(repeated)
        now = time.time()
        if key is not None:
            self._keys[key] = now
        for request_id, answer in (answers or {}).items():
            self._answers[request_id] = (now, answer)
            self._bytes += len(answer)
        self._delete_old(now)
        totals, past = self._record
        for entry in entries:
            if entry.opens_horizon:
                past = (*past, totals)
                totals = Totals.zero(self._n_groups, entry.began)
            totals = totals.after(entry)
        self._record = (totals, past)
        return True

    def knows(self, key: str) -> bool:
        """Return whether entries were recorded under this idempotency key."""
        return key in self._keys

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; empty if it is too old to be saved still."""
        found = {request_id: b"" for request_id in request_ids if request_id in self._expired}
        for request_id in request_ids:
            if request_id in self._answers:
                found[request_id] = self._answers[request_id][1]
        return found

    def grow(self, n_groups: int) -> None:
        """Add groups with zero exposures."""
        totals, past = self._record
        self._record = (totals.grown(n_groups), tuple(one.grown(n_groups) for one in past))
        self._n_groups = n_groups

    def save(self, name: str, value: bytes, audit: Sequence[AuditRecord] = ()) -> None:
        """Save a value beside the record."""
        self._saved[name] = value
        for one in audit:
            self._audit.setdefault(one.id, one.record)

    def audit(self, limit: int, before: int | None = None) -> AuditPage:
        """Return the latest entries of the audit. Nothing can be removed from it but with the process."""
        entries = list(enumerate(self._audit.values(), 1))
        digest = reduce(chain, self._audit.values(), "")
        earlier = entries if before is None else entries[: max(before - 1, 0)]
        return AuditPage(tuple(earlier[::-1][:limit]), len(entries), digest)

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        return self._saved.get(name)

    def close(self) -> None:
        """Do nothing: there is nothing to release. The record lives as long as this object, and may be used again."""

    def _delete_old(self, now: float) -> None:
        oldest, retention = now - self.retention.seconds, self.retention
        while self._keys and (len(self._keys) > retention.max_ids or _first(self._keys)[1] < oldest):
            del self._keys[_first(self._keys)[0]]
        while self._answers:
            request_id, (answered_at, answer) = _first(self._answers)
            if answered_at >= oldest and self._bytes <= retention.max_bytes:
                break
            del self._answers[request_id]
            self._bytes -= len(answer)
            self._expired[request_id] = None
        while len(self._expired) > retention.max_ids:
            del self._expired[_first(self._expired)[0]]


def _first(latest: dict[str, T]) -> tuple[str, T]:
    return next(iter(latest.items()))
