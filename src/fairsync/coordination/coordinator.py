"""The coordinator: it holds counts and prices for any number of front ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairsync.catalog.groups import Groups
from fairsync.coordination.base import CoordinatorBase, check_seconds
from fairsync.coordination.local_state import LocalState
from fairsync.floors import make_terms
from fairsync.ledger import Ledger, MemoryLedger
from fairsync.policies import Policy, make_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.lease import Lease
    from fairsync.floors import Floors
    from fairsync.ledger import Entry
    from fairsync.policies import Sample


class CoordinatorProtocol(Protocol):
    """The part of a coordinator that front ends use, in this process or another."""

    @property
    def labels(self) -> Sequence[Label]: ...  # noqa: D102

    @property
    def k(self) -> int: ...  # noqa: D102

    def lease(self, n: int) -> Lease:
        """Lease up to n requests. Blocks while granting them could make a floor unreachable."""
        ...

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Record the counts of a lease, and answers by request id. Idempotent: settling again changes nothing."""
        ...

    def answer(self, request_id: str) -> bytes | None:
        """Return the saved answer to a request; see `Ledger.answer`."""
        ...

    def release(self, number: int) -> None:
        """Return a lease that was not answered. Its requests can be leased again."""
        ...


class Coordinator(CoordinatorBase):
    """Holds counts and prices for any number of front ends, and grants them leases.

    It knows groups and no items. All methods are thread-safe. The floors hold for any number of front ends
    (:mod:`fairsync.coordination.lease_table` proves it).

    With a durable ledger, a coordinator that was killed can be replaced by another one over the same ledger. It
    continues from the recorded counts and the saved state of the policy. Leases of the first coordinator can be settled
    with the second: no count is lost, and none is recorded twice.

    Parameters
    ----------
    catalog
        The catalog, or its `groups`: the coordinator needs no items.
    k, floors, horizon, policy, batch_size, ledger
        As for :class:`fairsync.FairRetriever`.
    lease_seconds
        Seconds after which an open lease expires: its front end is taken to be dead.
    save_seconds
        Seconds between two saves of the policy's state in the ledger.
    auto_restart
        Whether a new horizon starts by itself after ``horizon`` requests. Otherwise it ends by the clock: see
        `set_targets`.
    allow_infeasible
        Whether to continue where floors can no longer be met with the counts of the ledger, as after an outage.
        Refused by default.

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
        *,
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
        terms = make_terms(catalog, k, floors, horizon, batch_size, auto_restart=auto_restart)
        groups, made = Groups(list(catalog.labels), catalog.group_sizes), make_policy(policy)
        record = MemoryLedger(len(groups.labels)) if ledger is None else ledger
        state = LocalState(record, groups, terms, made, lease_seconds, allow_infeasible=allow_infeasible)
        super().__init__(state, record, made, lease_seconds, save_seconds, f"policy {made.name}")
