"""The promise that several coordinators keep together, as it stands on their server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.errors import InvalidInputError
from fairsync.floors import group_caps
from fairsync.policies import Terms

if TYPE_CHECKING:
    from fairsync.coordination.redis.store import RedisStore

TERMS = "terms"


@dataclass(frozen=True)
class SharedTerms:
    """What was promised, and to whom: the settings in which all who share accounts must agree.

    Attributes
    ----------
    number : int
        How often it has changed.
    groups : Groups
        To whom.
    floors, k, horizon, rolls
        What; see :class:`fairsync.policies.Terms`.
    guarded : bool
        Whether the guard sees to the floors. One coordinator without it would break the promise of all.
    """

    number: int
    groups: Groups
    floors: tuple[int, ...]
    k: int
    horizon: int
    auto_restart: bool
    guarded: bool

    @classmethod
    def of(cls, number: int, groups: Groups, terms: Terms, guarded: bool) -> SharedTerms:
        """Return the promise of these terms."""
        return cls(number, groups, tuple(terms.floors.tolist()), terms.k, terms.horizon, terms.auto_restart, guarded)

    @classmethod
    def load(cls, packed: bytes) -> SharedTerms:
        """Return the promise that was made into these bytes."""
        document = json.loads(packed)
        groups = Groups(document.pop("labels"), np.array(document.pop("sizes"), dtype=np.int64))
        return cls(groups=groups, floors=tuple(document.pop("floors")), **document)

    @classmethod
    def on(cls, store: RedisStore) -> SharedTerms | None:
        """Return the promise that stands in a record; None if there is none."""
        packed = store.load(TERMS)
        return None if packed is None else cls.load(packed)

    def dump(self) -> bytes:
        """Return it as bytes."""
        return json.dumps({"number": self.number, **self._facts()}).encode()

    def difference(self, other: SharedTerms) -> str:
        """Say in what another promise differs; nothing if it does not.

        Examples
        --------
        >>> groups = Groups(["a"], np.array([5]))
        >>> SharedTerms(1, groups, (7,), 2, 10, True, True).difference(SharedTerms(4, groups, (7,), 2, 20, True, True))
        'horizon (10 here, 20 there)'
        """
        mine, theirs = self._facts(), other._facts()
        # Items may come and go, as long as no request could hold more or fewer of a group than before.
        mine["sizes"], theirs["sizes"] = (group_caps(one.groups, one.k).tolist() for one in (self, other))
        if not (self.auto_restart or other.auto_restart):
            for name in ("sizes", "floors", "horizon"):  # whoever leads sets them all the time
                del mine[name]
            both = min(len(self.groups.labels), len(other.groups.labels))  # groups may have come
            mine["labels"], theirs["labels"] = mine["labels"][:both], theirs["labels"][:both]
        return ", ".join(
            f"{name} ({value} here, {theirs[name]} there)" if isinstance(value, int) else name
            for name, value in mine.items()
            if value != theirs[name]
        )

    def check_agrees(self, totals: SharedTerms, store: RedisStore) -> None:
        """Refuse another promise than the one that stands in a record."""
        difference = self.difference(totals)
        if difference:
            raise InvalidInputError(
                f"the promise {store.name!r} on {store.address} differs in {difference}: give the settings that stand"
                " there, or another name; with if_differs this replica can follow or take over."
            )

    def terms(self, batch_size: int) -> Terms:
        """Return what a replica with batches of its own goes by."""
        floors, caps = np.array(self.floors, dtype=np.int64), group_caps(self.groups, self.k)
        return Terms(floors, caps, self.k, self.horizon, batch_size, self.auto_restart)

    def _facts(self) -> dict[str, Any]:
        return {
            "labels": self.groups.labels,
            "sizes": self.groups.group_sizes.tolist(),
            "floors": list(self.floors),
            "k": self.k,
            "horizon": self.horizon,
            "auto_restart": self.auto_restart,
            "guarded": self.guarded,
        }
