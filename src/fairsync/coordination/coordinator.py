"""The coordinator: it holds counts and prices for any number of front ends, alone or together with others."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.groups import Groups, grow
from fairsync.closing import Closable, NoCopies
from fairsync.coordination.coordinated_items import CoordinatedItems, promise_groups
from fairsync.coordination.counted import bounds_of
from fairsync.coordination.lease import lease_key
from fairsync.coordination.local_state import LocalState
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.inputs import check_counts, check_positive, check_seconds
from fairsync.ledger import Entry, MemoryLedger, SqlLedger, open_ledger
from fairsync.loop.calibration import calibrate
from fairsync.loop.commitment import Commitment
from fairsync.loop.saved_prices import PriceSaver
from fairsync.policies import Policy, make_policy
from fairsync.promises.floors import changed_terms, make_terms
from fairsync.promises.promise import Promise
from fairsync.promises.selection import conditions_of, is_selection
from fairsync.report import Report, make_report
from fairsync.report.gave_way import GaveWay, find_given_way
from fairsync.report.outlook import PromiseOutlook, promise_outlook
from fairsync.search import make_index

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Where
    from fairsync.catalog.atoms import Atoms
    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.leader_election import LeaderElection
    from fairsync.coordination.lease import Lease, Settlement
    from fairsync.coordination.shared_join import IfDiffers
    from fairsync.coordination.shared_state import SharedState
    from fairsync.coordination.shared_terms import SharedTerms
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Ledger, Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.loop.spending import Spending
    from fairsync.policies import Terms
    from fairsync.promises.floors import Floors
    from fairsync.search import Index

_log = logging.getLogger(__name__)
# A coordinator that does not lead stands for election at most this often, in seconds.
_ELECTION_SECONDS = 0.5


class Coordinator(NoCopies, Closable):
    """Holds counts and prices for any number of front ends, and grants them leases.

    For floors it needs the groups only, for promises the catalog. All methods are thread-safe. Promises hold for any
    number of front ends (:mod:`fairsync.coordination.lease_table` proves it).

    Coordinators that have the same ledger in Postgres share one promise: counts, leases and the promise are common, and
    each makes prices from its own requests. So every replica of a service can have its own. One of them, the leader,
    plans for all: see `lead`.

    With a durable ledger, a coordinator that was killed can be replaced by another one over the same ledger. It
    continues from the recorded counts and the saved state of the policy. Leases of the first coordinator can be settled
    with the second: no count is lost, and none is recorded twice.

    Parameters
    ----------
    catalog
        The catalog, or for floors its `groups`: then the coordinator needs no items.
    k, floors, horizon, policy, batch_size
        As for :class:`fairsync.FairRetriever`. Coordinators that share a ledger must agree in all but the last.
    promises
        Promises in place of floors, as for :class:`fairsync.FairRetriever`. They need a catalog.
    max_exclude
        The most items that a request excludes. Floors are certain as long as none excludes more, or has a condition;
        coordinators that share a ledger must agree in it.
    ledger
        The URL of a ledger, or a ledger, which belongs to the caller. ``"postgresql://..."`` is shared, and so is an
        object that was opened with ``shared=True``.
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
    replica
        Name of this coordinator among those that share the ledger. Its prices are saved under it.
    if_differs
        If the ledger is shared, and has another promise: ``"refuse"`` to start, ``"follow"`` the ledger's, or
        ``"take over"``, which replaces it for all if it can be kept. If k differs, stop the other coordinators first.
    timeout
        Seconds for which a server that is away is tried again, if the ledger is given by its URL.

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

    use_instead = "it holds leases; make another one over the same ledger after close()"

    def __init__(
        self,
        catalog: Grouped,
        *,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        promises: Sequence[Promise] | None = None,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        max_exclude: int = 0,
        ledger: str | Ledger | None = None,
        lease_seconds: float = 30.0,
        save_seconds: float = 5.0,
        auto_restart: bool = True,
        allow_infeasible: bool = False,
        replica: str = "",
        if_differs: IfDiffers = "refuse",
        timeout: float = 10.0,
    ) -> None:
        if not hasattr(catalog, "group_sizes"):
            raise InvalidInputError(f"a coordinator needs a catalog, or its groups, got {type(catalog).__name__}.")
        lease_seconds = check_seconds(lease_seconds, "lease_seconds", above=0)
        save_seconds = check_seconds(save_seconds, "save_seconds")
        self.policy, self._batch_size = make_policy(policy), batch_size
        self._promised = CoordinatedItems(catalog if isinstance(catalog, Catalog) else None)
        if promises is None:
            terms = make_terms(
                catalog, k, floors, horizon, batch_size, auto_restart=auto_restart, max_exclude=max_exclude
            )
            groups = Groups(list(catalog.labels), catalog.group_sizes)
        else:
            if not isinstance(catalog, Catalog):
                raise InvalidInputError("a coordinator with promises needs the catalog, not its groups alone.")
            commitment = Commitment.of(catalog, k, floors, promises, horizon, batch_size, max_exclude)
            self._promised = CoordinatedItems(catalog, commitment)
            groups, terms = promise_groups(commitment), commitment.terms
            if not auto_restart:
                raise InvalidInputError("promises over a horizon end with it: auto_restart=False is for floors.")
        self.replica, self.lease_seconds, self.save_seconds = replica, lease_seconds, save_seconds
        self._changed, self._closed, self._asked_at = threading.Condition(), False, -_ELECTION_SECONDS
        self._owns_ledger, self._election = isinstance(ledger, str), cast("LeaderElection | None", None)
        if isinstance(ledger, str):
            self.ledger: Ledger = open_ledger(ledger, len(groups.labels), shared=True, timeout=timeout)
        else:
            self.ledger = MemoryLedger(len(groups.labels)) if ledger is None else ledger
        try:
            saved_as = f"policy {self.policy.name}" + (f" of {replica}" if replica else "")
            self._saver = PriceSaver(self.ledger, self.policy, save_seconds, saved_as)
            spending = self._saver.spending(terms, self.ledger.totals())
            if isinstance(self.ledger, SqlLedger) and self.ledger.shared:
                self._state: LocalState | SharedState = self._shared_state(
                    self.ledger, groups, terms, spending, if_differs
                )
            else:
                self._state = LocalState(
                    self.ledger, groups, terms, self.policy, lease_seconds, spending, allow_infeasible=allow_infeasible
                )
                if not auto_restart:
                    self._restore_selections()
            self._state.learn(self._saver.load(self._state.terms, self._state.loop))
        except BaseException:
            self._release_ledger()
            raise

    @property
    def groups(self) -> Groups:
        """The groups of the promise."""
        return self._state.groups

    @property
    def terms(self) -> Terms:
        """The promise."""
        return self._state.terms

    @property
    def labels(self) -> list[Label]:
        """What is counted, in the order of the counts: group labels, then selections by name; or names of promises."""
        return self.groups.labels

    @property
    def group_attribute(self) -> str:
        """The attribute of the groups, whose labels are always counted."""
        return self._promised.group_attribute

    @property
    def selections(self) -> frozenset[str]:
        """The selections that are counted besides the labels of groups, by name."""
        counted = self._promised.counted
        return frozenset() if counted is None else counted.selections

    @property
    def promises(self) -> tuple[Promise, ...] | None:
        """The promises, or what each column selects, once targets speak of selections; None for floors of groups."""
        return self._promised.promises

    @property
    def k(self) -> int:
        """Candidates per request."""
        return self.terms.k

    def lead(self, *, take: bool = False) -> bool:
        """Return whether this coordinator is the leader, which plans for all that share the ledger.

        A coordinator with a ledger to itself always leads. Of others, the first that asks becomes the leader, until it
        is closed or its connection to the database ends. To be asked every second or so, which also keeps this
        coordinator up to date. One that has lost the lead is told so once before it can lead again. If the database is
        away, nobody leads.

        Parameters
        ----------
        take
            Whether to take the lead from another coordinator.
        """
        election, now = self._election, time.monotonic()
        if election is None:
            return True
        if not (take or election.leads) and now < self._asked_at + _ELECTION_SECONDS:
            return False
        self._asked_at = now
        try:
            with self._changed:
                if self._closed:
                    return False
                leads = election.ask(take=take)
                self._state.refresh()
        except BackendUnavailableError as error:
            _log.warning("nobody leads: %s", error)
            return False
        return leads

    def take_news(self) -> bool:
        """Return whether another coordinator has announced a change since the last call."""
        return self._election is not None and self._election.take_news()

    def announce(self) -> None:
        """Announce a change, such as a new plan, to the coordinators that share the ledger."""
        if self._election is not None:
            self._election.announce()

    def lease(self, n: int, k: int | None = None) -> Lease:
        """Lease up to n requests of k candidates. Blocks while granting them could make a floor unreachable."""
        while (lease := self.try_lease(n, timeout=self.lease_seconds, k=k)) is None:
            pass
        return lease

    def try_lease(
        self, n: int, timeout: float = 0.0, seconds: float | None = None, k: int | None = None
    ) -> Lease | None:
        """Lease up to n requests; None if that would block for longer than ``timeout`` seconds.

        Parameters
        ----------
        n
            Number of requests.
        timeout
            Seconds to wait for open leases.
        seconds
            Seconds after which the lease expires. Defaults to ``lease_seconds``.
        k
            Candidates of each of these requests. Longer lists than the promise assumes may use up more of the caps.
            Defaults to the coordinator's k.
        """
        n, deadline, tries = check_positive(n, "n"), time.monotonic() + timeout, 0
        with self._changed:
            self._check_open()
            while (lease := self._state.lease(n, seconds, k)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(self._state.retry_delay(tries), left))
                self._check_open()
                tries += 1
            return lease

    def settle(self, number: int, settlement: Settlement) -> Entry | None:
        """Record the counts of a lease, and answers by request id. Idempotent: settling again changes nothing.

        Returned is the entry as it counts, without requests if the lease was lost; None if it was settled before. What
        promises cost is in the report if the coordinator has the ledger to itself.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before. Nothing was recorded: settle without them.
        LostLeaseError
            The lease was lost, and there are caps. Nothing was recorded: lease again.
        """
        with self._changed:
            self._check_open()
            counted = self._state.settle(number, settlement)
            if counted is not None:
                self._changed.notify_all()
                self._saver.save_if_due(self.terms, self._state.loop)
            return counted

    def record_late(self, number: int, entry: Entry, answers: Mapping[str, bytes]) -> bool:
        """Record exposures of a lost lease that `settle` refused although they were shown; False if they are known.

        They may exceed caps. The requests do not count, because they were granted again. Answers by request id are
        saved with them.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before. Nothing was recorded: repeat it without them.
        """
        with self._changed:
            self._check_open()
            return self._state.record(replace(entry, requests=0), lease_key(number), answers)

    def release(self, number: int) -> None:
        """Return a lease that was not answered. Its requests can be leased again."""
        with self._changed:
            self._state.release(number)
            self._changed.notify_all()

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; see `Ledger.answers`."""
        return self.ledger.answers(request_ids)

    def save_answers(self, answers: Mapping[str, bytes]) -> None:
        """Save answers that do not count, by request id, so that a repeated request gets the same answer.

        Raises
        ------
        RepeatedRequestError
            Some of the requests have been answered before. Nothing was saved: repeat it without them.
        """
        with self._changed:
            self._check_open()
            nothing = Entry(np.zeros(len(self.labels), dtype=np.int64), 0, 0.0, 0.0)
            self.ledger.record([nothing], answers=answers)

    def record_impressions(self, impressions: ArrayLike, key: str) -> bool:
        """Record exposures that were reported as really shown; return False if this idempotency key is known.

        Parameters
        ----------
        impressions
            (G,) the number of each group; groups that were added since may be missing at the end.
        key
            The idempotency key.
        """
        counts = grow(check_counts(impressions, len(self.labels)), len(self.labels))
        with self._changed:
            self._check_open()
            return self._state.record(Entry(np.zeros_like(counts), 0, 0.0, 0.0, impressions=counts), key)

    def set_targets(
        self,
        more: Floors | None = None,
        requests: int | None = None,
        restart_at: float | None = None,
        groups: Grouped | None = None,
        saves: Mapping[str, bytes] | None = None,
        audit: Sequence[AuditRecord] = (),
        *,
        promises: Sequence[Promise] | None = None,
        since: Totals | None = None,
    ) -> None:
        """Aim at additional exposures within a number of further requests, for promises that end by the clock.

        From then on a horizon ends when the next one begins, whatever the number of its requests. Targets are never
        refused: they are lowered to what the requests can deliver, higher priorities first, and reporting the rest is
        up to the caller.

        Floors of labels of the group attribute need nothing but groups. Other selections are counted from the first
        call that names them, each in a column of its own (`labels`), which is never taken away. A selection that is not
        named again counts nothing from then on.

        Parameters
        ----------
        more
            Additional exposures of each group, in place of promises.
        requests
            Expected number of further requests.
        restart_at
            Start of a new horizon, in seconds since 1970. By default the horizon under way continues.
        groups
            A changed catalog, or its groups; new groups follow the known ones.
        saves
            Values to save in the ledger in the same transaction, by name.
        audit
            Records to add to the ledger's audit in the same transaction.
        promises
            All selections that are to be counted, with the bounds on their exposures in these requests as whole
            numbers; ``at_least=0`` only counts. Of several promises with the same conditions, the largest floor counts,
            with the first priority that has it, and the smallest upper bounds.
        since
            The totals of the horizon that the bounds were reckoned with, as `totals` returned them. Exposures that were
            counted since then count towards them. By default, the totals at this moment.
        """
        if requests is None:
            raise InvalidInputError("give requests, the number of further requests within which the targets are due.")
        requests = check_positive(requests, "requests")
        if (more is None) == (promises is None):
            raise InvalidInputError("give either more, the exposures of each group, or promises.")

        # Without the lock: they may be thousands.
        given = None if promises is None else self._promised.named(promises, groups)

        def attempt() -> bool:
            before, extend = self._promised, self._state.extended_groups
            after, targets = before.aim(more, given, requests, groups, self.groups, self.terms, extend)
            self._promised = after
            try:
                return self._state.set_targets(targets, restart_at, saves, audit, since)
            finally:
                counted = after.counted
                in_force = counted is None or self.terms.membership is counted.atoms.membership
                if self._promised is after and not in_force:  # nothing was changed
                    self._promised = before

        self._retry(attempt)

    def change_items(self, catalog: Catalog) -> None:
        """Continue with the same targets over other items, for promises that end by the clock.

        Call it before front ends get the items: they may have labels that are not counted yet.
        """
        with self._changed:
            self._state.refresh()
            terms, totals = self.terms, self.totals()
            left, missing = max(terms.horizon - totals.requests, 1), np.maximum(terms.floors - totals.exposures, 0)
            counted = self._promised.counted
            if counted is None:
                more = dict(zip(self.labels, missing.tolist(), strict=True))
                self.set_targets(more, left, groups=catalog)
            else:
                promises = bounds_of(counted, terms, missing, totals)
                self.set_targets(requests=left, groups=catalog, promises=promises, since=totals)

    def column_of(self, where: Where) -> Label:
        """Return the label under which a selection is counted, whether it is or not: see `labels`."""
        return self._promised.column_of(where)

    def promise(
        self,
        floors: Floors | None = None,
        horizon: int | None = None,
        catalog: Grouped | None = None,
        promises: Sequence[Promise] | None = None,
    ) -> None:
        """Replace the promise. One that cannot be kept is refused, and nothing is changed.

        Open leases were granted under the old promise. Blocks while they could make the new one unreachable, until they
        are settled or expire. Refused if there are still such leases after twice ``lease_seconds``.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}. By default the floors stay as they are.
        horizon
            Requests over which the floors are spread, from the start of the horizon under way. By default it stays as
            it is.
        catalog
            The catalog after a change of items (:mod:`fairsync.catalog.changes`); new groups follow the known ones.
            Change the coordinator first, then the front ends.
        promises
            All promises from now on, if the coordinator was made with promises; see
            :meth:`fairsync.FairRetriever.promise`.
        """
        # Twice, because a lease may have been granted just now, and has to expire first.
        deadline = time.monotonic() + 2 * self.lease_seconds

        def attempt_promises(before: Commitment) -> bool:
            if catalog is not None and not isinstance(catalog, Catalog):
                raise InvalidInputError("a coordinator with promises needs the catalog, not its groups alone.")
            after = before.changed(catalog or before.catalog, floors, promises, horizon)
            may_wait = time.monotonic() < deadline
            known = self._promised
            self._promised = made = replace(known, commitment=after)  # a shared promise is read under these items
            done = False
            try:
                done = self._state.promise(
                    promise_groups(after), after.terms, may_wait=may_wait, promises=after.promises
                )
            finally:
                if not done and self._promised is made:  # nothing was changed
                    self._promised = known
            return done

        def attempt() -> bool:  # the promise may be changed by others between two attempts
            if self._promised.commitment is not None:
                return attempt_promises(self._promised.commitment)
            if promises is not None:
                raise InvalidInputError("this coordinator keeps floors of groups: make one with promises.")
            groups = self.groups if catalog is None else self._state.extended_groups(catalog)
            terms = changed_terms(self.terms, self.labels, groups, floors, horizon)
            return self._state.promise(groups, terms, may_wait=time.monotonic() < deadline)

        self._retry(attempt)

    def calibrate(self, past_users: ArrayLike, catalog: Catalog, index: Index) -> Self:
        """Learn prices from past requests over these items; see :meth:`fairsync.FairRetriever.calibrate`."""
        with self._changed:
            self._state.refresh()
            if self._promised.commitment is not None:  # by atom, which the caller's catalog and index do not know
                catalog = self._promised.commitment.searched
                index = make_index("exact", catalog)
            self._state.learn(calibrate(self._state.loop, self.terms, self.policy, catalog, index, past_users))
            self._saver.save_if_due(self.terms, self._state.loop)
        return self

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return the state of the promise, from all settled leases."""
        with self._changed:
            self._state.refresh()
            loop, past, labels, terms = self._state.loop, self._state.past(), self._names(), self.terms
        prices, slots = loop.prices_in_force(terms, self.policy), loop.price_state.all_slots
        totals, costs = loop.progress.totals, loop.price_state.costs
        gave_way = find_given_way(labels, terms, loop)
        return make_report(labels, terms, self.policy.name, totals, past, prices, hindsight, costs, slots, gave_way)

    def gave_way(self) -> dict[Label, GaveWay]:
        """Return what gave way in the horizon, by label: see `labels`."""
        with self._changed:
            return find_given_way(self.labels, self.terms, self._state.loop)

    @property
    def has_outlooks(self) -> bool:
        """Whether requests were limited, so that what later ones can show is forecast; see `outlook`."""
        return self._state.loop.price_state.all_slots is not None

    def outlook(self, group: Label, missing: int, requests: int) -> PromiseOutlook | None:
        """Return what is to be expected of a promise, from what requests could show; None if none was limited so far.

        Parameters
        ----------
        group
            Label of the group.
        missing
            Exposures that the promise still misses.
        requests
            Requests to come until it ends.
        """
        with self._changed:
            slots, terms, code = self._state.loop.price_state.all_slots, self.terms, self.groups.code_of(group)
        return None if slots is None else promise_outlook(code, missing, requests, terms, slots)

    def save(self) -> None:
        """Save the policy's state and the price batch under way in the ledger now.

        It is also saved every ``save_seconds``, and by `close`.
        """
        with self._changed:
            self._saver.save(self.terms, self._state.loop)

    def close(self) -> None:
        """Save the policy's state, and refuse further calls. Leases that are out can be settled with the next one.

        A ledger that was given as an object stays open: it belongs to the caller. Close front ends first, so that they
        settle their leases.
        """
        with self._changed:
            if not self._closed:
                self._closed = True
                self._changed.notify_all()
                self.save()
                self._release_ledger()

    def totals(self) -> Totals:
        """Return the totals of the horizon, from all settled leases known here."""
        return self._state.loop.progress.totals

    def prices(self) -> NDArray[np.float64]:
        """Return (G,) the prices in force."""
        with self._changed:
            return self._state.loop.prices_in_force(self.terms, self.policy)

    @property
    def price_version(self) -> int:
        """The number of times that prices have changed."""
        return self._state.loop.price_state.version

    def _names(self) -> list[Label]:
        """Return the labels of the columns as people read them: selections by their conditions."""
        return [Promise(conditions_of(str(one)), at_least=0).name if is_selection(one) else one for one in self.labels]

    def _retry(self, attempt: Callable[[], bool]) -> None:
        """Repeat an attempt until it succeeds, waiting in between for leases to be settled or to expire."""
        tries = 0
        with self._changed:
            self._check_open()
            self._state.refresh()
            while not attempt():
                self._changed.wait(self._state.retry_delay(tries))
                tries += 1
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise FairSyncError("The coordinator is closed: make another one over the same ledger, which continues.")

    def _shared_state(
        self, ledger: SqlLedger, groups: Groups, terms: Terms, spending: Spending, if_differs: IfDiffers
    ) -> SharedState:
        from fairsync.coordination.leader_election import LeaderElection  # here, because psycopg is optional
        from fairsync.coordination.shared_join import join_ledger

        if ledger.fence is not None:
            raise InvalidInputError("this ledger object has a coordinator already: open another one with shared=True.")
        state = join_ledger(
            ledger, groups, terms, self.policy, self.lease_seconds, if_differs, self._follow, self._promised.made,
            spending,
        )  # fmt: skip
        self._election = LeaderElection(ledger.database)
        ledger.fence = self._election.check
        return state

    def _restore_selections(self) -> None:
        """Count the selections that the saved prices know, so that these can be used; targets follow."""
        restored = self._promised.restored(self.labels, self._saver.saved_membership())
        if restored is not None:
            self._promised, targets = restored
            self._state.set_targets(targets)

    def _follow(self, shared: SharedTerms) -> Atoms | None:
        """Return the atoms of the items here under the promise of a shared ledger, and count by it from now on."""
        self._promised, atoms = self._promised.followed(shared, self._batch_size, self._saver.saved_membership)
        return atoms

    def _release_ledger(self) -> None:
        if self._election is not None:
            self._election.step_down()
            cast("SqlLedger", self.ledger).fence = None
        if self._owns_ledger:
            self.ledger.close()
