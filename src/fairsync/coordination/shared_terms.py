"""The promise that several coordinators share, as the ledger saves it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.errors import InvalidInputError
from fairsync.floors import group_capacities
from fairsync.policies import Terms

if TYPE_CHECKING:
    from fairsync.ledger.base import Saved

# Name under which the ledger saves it.
TERMS = "terms"


@dataclass(frozen=True)
class SharedTerms:
    """A promise, and its groups: the settings in which coordinators that share a ledger must agree.

    Attributes
    ----------
    number : int
        Number of changes so far.
    groups : Groups
        The groups.
    floors, k, horizon, auto_restart
        The promise; see :class:`fairsync.policies.Terms`.
    keeps_floors : bool
        Whether the guard keeps the floors. One coordinator without it would break the promise of all.
    max_exclude : int
        The most items that a request excludes.
    """

    number: int
    groups: Groups
    floors: tuple[int, ...]
    k: int
    horizon: int
    auto_restart: bool
    keeps_floors: bool
    max_exclude: int = 0

    @classmethod
    def of(cls, number: int, groups: Groups, terms: Terms, *, keeps_floors: bool) -> SharedTerms:
        """Return the promise of these terms."""
        floors = tuple(terms.floors.tolist())
        return cls(number, groups, floors, terms.k, terms.horizon, terms.auto_restart, keeps_floors, terms.max_exclude)

    @classmethod
    def load(cls, data: bytes) -> SharedTerms:
        """Return the promise from the bytes of `dump`."""
        document = json.loads(data)
        groups = Groups(document.pop("labels"), np.array(document.pop("sizes"), dtype=np.int64))
        return cls(groups=groups, floors=tuple(document.pop("floors")), **document)

    @classmethod
    def saved_in(cls, ledger: Saved) -> SharedTerms | None:
        """Return the promise that is saved in a ledger; None if there is none."""
        data = ledger.load(TERMS)
        return None if data is None else cls.load(data)

    def dump(self) -> bytes:
        """Return the promise as bytes."""
        return json.dumps({"number": self.number, **self._settings()}).encode()

    def difference(self, other: SharedTerms) -> str:
        """Say in which settings two promises differ; empty if they agree.

        Examples
        --------
        >>> groups = Groups(["a", "b"], np.array([10, 10]))
        >>> mine = SharedTerms(0, groups, (5, 5), k=2, horizon=100, auto_restart=True, keeps_floors=True)
        >>> other = SharedTerms(3, groups, (5, 9), k=3, horizon=100, auto_restart=True, keeps_floors=True)
        >>> mine.difference(other)
        'floors, k (2 here, 3 there)'
        """
        mine, theirs = self._settings(), other._settings()
        # Items may come and go as long as a request can hold as many of each group as before.
        mine["sizes"], theirs["sizes"] = (
            group_capacities(one.groups, self.k, self.max_exclude).tolist() for one in (self, other)
        )
        if not (self.auto_restart or other.auto_restart):
            for name in ("sizes", "floors", "horizon"):  # the leader sets them with every plan
                del mine[name]
            both = min(len(self.groups.labels), len(other.groups.labels))  # groups may have been added
            mine["labels"], theirs["labels"] = mine["labels"][:both], theirs["labels"][:both]
        return ", ".join(
            f"{name} ({value} here, {theirs[name]} there)" if isinstance(value, int) else name
            for name, value in mine.items()
            if value != theirs[name]
        )

    def check_agrees(self, shared: SharedTerms, address: str) -> None:
        """Refuse another promise than the one in a ledger."""
        difference = self.difference(shared)
        if difference:
            raise InvalidInputError(
                f"the promise in {address} differs in {difference}: give the settings of the ledger, or another ledger;"
                " with if_differs a coordinator can follow or take over."
            )

    def terms(self, batch_size: int) -> Terms:
        """Return the terms of a coordinator with this batch size."""
        floors, capacities = (
            np.array(self.floors, dtype=np.int64),
            group_capacities(self.groups, self.k, self.max_exclude),
        )
        return Terms(floors, capacities, self.k, self.horizon, batch_size, self.auto_restart, self.max_exclude)

    def _settings(self) -> dict[str, Any]:
        return {
            "labels": self.groups.labels,
            "sizes": self.groups.group_sizes.tolist(),
            "floors": list(self.floors),
            "k": self.k,
            "horizon": self.horizon,
            "auto_restart": self.auto_restart,
            "keeps_floors": self.keeps_floors,
            "max_exclude": self.max_exclude,
        }
