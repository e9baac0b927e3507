"""Several front ends, one promise: a coordinator hands out requests, and what came of them comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairsync.coordination.base import CoordinatorBase, check_seconds, promised
from fairsync.coordination.local_state import LocalState
from fairsync.ledger import Ledger, MemoryLedger
from fairsync.policies import Policy, make_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.books import Lease
    from fairsync.floors import Floors
    from fairsync.ledger import Entry
    from fairsync.policies import Sample


class CoordinatorProtocol(Protocol):
    """What a front end needs of a coordinator, wherever it runs."""

    @property
    def labels(self) -> Sequence[Label]: ...  # noqa: D102

    @property
    def k(self) -> int: ...  # noqa: D102

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        ...

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Write down what came of a lease, and answers to be kept; saying it again changes nothing."""
        ...

    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request; see `Ledger.answer`."""
        ...

    def release(self, number: int) -> None:
        """Take a lease back that was not answered."""
        ...


class Coordinator(CoordinatorBase):
    """The one place where counts meet and prices are made, for any number of front ends.

    It knows groups and no items. All its methods may be called from many threads at once. Floors hold for any number of
    front ends (:mod:`fairsync.coordination.lease_table` says why).

    With a ledger that outlives it, a coordinator that was killed is replaced by another one over the same ledger: it
    goes on where the record ends, with the prices that the policy had learnt. Leases of the first one may still be
    settled with the second; nothing is lost or counted twice.

    Parameters
    ----------
    catalog
        Of which the groups count; its `groups` alone will do.
    k, floors, horizon, policy, batch_size, ledger
        As for :class:`fairsync.FairRetriever`.
    lease_seconds
        A lease that is not settled for so long is given to others: its front end is taken for dead.
    keep_seconds
        What the policy has learnt is kept in the ledger so often.
    rolls
        Whether a new horizon begins by itself after so many requests. Otherwise it ends by the clock: see `steer`.
    goes_on
        Whether to go on also where the ledger leaves floors that can no longer be met, as an outage may. Otherwise that
        is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.coordination.front_end import FrontEnd
    >>> rng = np.random.default_rng(0)
    >>> catalog = Catalog(rng.normal(size=(40, 8)), ["red"] * 20 + ["blue"] * 20)
    >>> coordinator = Coordinator(catalog, k=2, floors={"blue": 30}, horizon=20)
    >>> left, right = FrontEnd(catalog, coordinator), FrontEnd(catalog, coordinator)
    >>> _ = left.retrieve(rng.normal(size=(10, 8))), right.retrieve(rng.normal(size=(10, 8)))
    >>> coordinator.report().exposures["blue"] >= 30
    True
    """

    def __init__(
        self,
        catalog: Grouped,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        ledger: Ledger | None = None,
        lease_seconds: float = 30.0,
        save_seconds: float = 5.0,
        auto_restart: bool = True,
        allow_infeasible: bool = False,
    ) -> None:
        check_seconds(lease_seconds, save_seconds)
        groups, terms = promised(catalog, k, floors, horizon, batch_size, auto_restart=auto_restart)
        made, kept = make_policy(policy), MemoryLedger(len(groups.labels)) if ledger is None else ledger
        self._books: LocalState = LocalState(
            kept, groups, terms, made, lease_seconds, allow_infeasible=allow_infeasible
        )
        super().__init__(self._books, kept, made, lease_seconds, save_seconds, f"policy {made.name}")
