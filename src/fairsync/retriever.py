"""The retriever: search, guard, ledger and policy in one process."""

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fairsync.candidates import Candidates, Explainable
from fairsync.catalog import Catalog, Where
from fairsync.catalog.arrays import DataFrame
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.catalog.groups import Label
from fairsync.closing import Closable, NoCopies
from fairsync.cold_start.cold_start import MEAN, Cold, ColdStart, is_cold
from fairsync.cold_start.fixed_list import FixedList
from fairsync.eligibility.eligible_items import make_rules
from fairsync.eligibility.rules import Exclude, Rules
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError
from fairsync.explain.explained_batch import explain_requests
from fairsync.hindsight import Hindsight
from fairsync.inputs import check_catalog, check_seconds, check_users
from fairsync.ledger import Entry, Ledger, MemoryLedger, open_existing, open_ledger
from fairsync.ledger.labels import check_labels, load_labels, save_labels
from fairsync.ledger.urls import MEMORY
from fairsync.loop.batch import Batch, ServedBatch, uncounted_batch
from fairsync.loop.calibration import calibrate
from fairsync.loop.certificate_opening import terms_in_force
from fairsync.loop.commitment import Commitment
from fairsync.loop.loop_state import LoopState
from fairsync.loop.saved_prices import PriceSaver, SavedPrices, continued_groups, continued_promises
from fairsync.loop.serving import serve
from fairsync.loop.spending import check_budget
from fairsync.policies import Policy, Terms, make_policy
from fairsync.promises import Promise
from fairsync.promises.floors import Floors
from fairsync.promises.resolve import ResolvedPromises, restore_promises
from fairsync.report import Report, make_report
from fairsync.report.gave_way import find_given_way
from fairsync.search import Index, make_index, replace_index
from fairsync.search.overlay import follow
from fairsync.text import count

if TYPE_CHECKING:
    from fairsync.saved_retriever import SavedRetriever  # it needs polars


class FairRetriever(NoCopies, Closable):
    """Retrieves candidates so that what was promised about them holds over the horizon.

    A promise is a floor of exposures for every group, or anything that :class:`fairsync.Promise` says.

    It is thread-safe: calls are answered one after another.

    Parameters
    ----------
    catalog
        The items.
    k
        Candidates per request.
    floors
        Minimum exposures of every group in the horizon: one number for all, or {label: number}.
    horizon
        Requests over which the promises are spread. After that many, a new horizon starts: counts restart at zero, and
        what the policy has learnt is kept.
    promises
        In place of floors: a list of :class:`fairsync.Promise`, which may overlap. They need the policy
        ``"guaranteed"``, or ``"none"`` to see what happens without prices. Promises that cannot all hold together are
        refused.
    policy
        ``"guaranteed"`` (floors hold, nothing to tune), ``"fairsync"`` (the paper's), ``"none"``, one of the paper's
        baselines (``"regularized-fair"``, ``"ipw"``, ``"k-neighbor"``, ``"uncalibrated"``), or a policy object.
    batch_size
        Requests between two price changes.
    index
        ``"exact"``, ``"ivf"`` or ``"hnsw"`` (approximate, for large catalogs), ``"one-hot"`` (the paper's), a function
        of the catalog that builds an index, or an index object over this catalog (for floors only).
    ledger
        The ledger that records exposures, and what the policy has learnt: a URL (``"sqlite:///exposures.db"``,
        ``"postgresql://..."``), or a ledger, which stays open, because it belongs to the caller. A retriever over the
        same ledger continues where the last one ended. By default it is in memory.
    save_seconds
        Seconds between two saves of the policy's state in a ledger that outlives the process. `close` saves it always.
    max_exclude
        The most items that a request excludes, declared in advance. The floors are then certain, and floors that such
        requests could make impossible are refused. A request that excludes more, or has a condition, is answered all
        the same. Only if that leaves it too few items of a promise, the floors are no longer certain:
        `limited_requests` counts these.
    cold
        The fallback for requests whose vectors are all zero, about whose user nothing is known: ``"mean"``, the mean of
        the latest user vectors, and before the first one that of the items; a vector (floats); or a list of ids
        (strings or integers), shown in this order and followed by what is best for the mean. See
        :class:`fairsync.cold_start.cold_start.ColdStart`.
    count_cold
        Whether answers to cold requests are exposures. If not, they are made without prices, and the horizon, counts
        and prices are as if these requests had not come.
    if_infeasible
        What becomes of promises that cannot all hold together, when they are made or changed: ``"refuse"`` them, or let
        floors ``"give way"``, those of the lowest priority first. The report says which, by how much, and to which.
    budget
        The part of the relevance that all promises together may cost in a horizon, such as 0.01. While they cost more,
        floors give way, those of the lowest priority first, and come back when there is room. By default there is no
        limit.

    Attributes
    ----------
    limited_requests : int
        Requests so far in this process that could not show what the floors count on, because of what they excluded or
        required.

    Examples
    --------
    All users prefer red; blue is promised 30 of the 200 slots.

    >>> rng = np.random.default_rng(0)
    >>> embeddings = rng.normal(size=(40, 8)) + np.repeat([[1.0], [0.0]], 20, axis=0)
    >>> catalog = Catalog(embeddings, ["red"] * 20 + ["blue"] * 20)
    >>> retriever = FairRetriever(catalog, k=2, floors={"blue": 30}, horizon=100, batch_size=10)
    >>> found = retriever.retrieve(rng.normal(size=(100, 8)) + 1.0)
    >>> found.ids.shape
    (100, 2)
    >>> report = retriever.report()
    >>> report.exposures["blue"], report.esp
    (30, 1.0)
    >>> retriever
    FairRetriever(Catalog(40 items, 2 groups, dim 8, float64), k=2, policy='guaranteed', index=ExactIndex,
    batch_size=10, floors of 1 group, 100 of 100 requests)
    """

    use_instead = "both would count on one promise; use retriever.save(folder) and FairRetriever.load(folder)"

    def __init__(
        self,
        catalog: Catalog,
        *,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        promises: Sequence[Promise] | None = None,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        index: str | Index | Callable[[Catalog], Index] = "exact",
        ledger: str | Ledger | None = None,
        save_seconds: float = 5.0,
        max_exclude: int = 0,
        cold: Cold = MEAN,
        count_cold: bool = True,
        if_infeasible: str = "refuse",
        budget: float | None = None,
    ) -> None:
        check_catalog(catalog)
        self.count_cold = count_cold
        self.policy = make_policy(policy)
        if if_infeasible not in ("refuse", "give way"):
            raise InvalidInputError(f"if_infeasible must be 'refuse' or 'give way', got {if_infeasible!r}.")
        gives_way, self.budget = if_infeasible == "give way", check_budget(budget)
        seconds = check_seconds(save_seconds, "save_seconds")
        self._lock, self._closed = threading.Lock(), False
        self.limited_requests = 0
        self._given, self._owns_ledger = (policy, index), isinstance(ledger, str)
        opened = open_existing(ledger) if isinstance(ledger, str) else ledger
        try:
            if opened is not None and promises is None:
                catalog, floors = continued_groups(catalog, floors, opened)
            self._cold = ColdStart(catalog, cold)
            before = None if opened is None else continued_promises(promises, opened, self.policy)
            self._commitment = Commitment.of(
                catalog, k, floors, promises, horizon, batch_size, max_exclude, gives_way=gives_way, before=before
            )
            self.index = make_index(index, self._commitment.searched)
            if opened is None:
                opened = open_ledger(ledger if isinstance(ledger, str) else MEMORY, len(self._commitment.labels))
            self.ledger: Ledger = opened
            # A crash would lose a state that is saved in memory: `close` alone saves it there.
            self._saver = PriceSaver(opened, self.policy, math.inf if isinstance(opened, MemoryLedger) else seconds)
            check_labels(opened, self._commitment.labels)
            # Promises that were accepted before go on, also if an outage has put some of them out of reach.
            anyway = gives_way or isinstance(promises, ResolvedPromises) or self._saver.were_in_force(self.terms)
            totals, n_counted = opened.totals(), len(self._commitment.labels)
            # Without labels it is not known whose counts these are.
            is_grown = len(totals.exposures) < n_counted and load_labels(opened) is not None
            if is_grown:
                totals = totals.grown(n_counted)
            spending, names = self._saver.spending(self.terms, totals, self.budget), self._commitment.names
            loop = LoopState.open(self.terms, self.policy, totals, spending, allow_infeasible=anyway, names=names)
            self._state = self._saver.load(self.terms, loop)
            save_labels(opened, self._commitment.labels)
            if is_grown:
                opened.grow(n_counted)
        except BaseException:
            if opened is not None and self._owns_ledger:
                opened.close()
            raise

    @property
    def catalog(self) -> Catalog:
        """The items."""
        return self._commitment.catalog

    @property
    def terms(self) -> Terms:
        """The promises as arrays."""
        return self._commitment.terms

    @property
    def promises(self) -> tuple[Promise, ...] | None:
        """The promises; None for floors of groups."""
        return self._commitment.promises

    def retrieve(
        self,
        users: npt.ArrayLike,
        exclude: Exclude | None = None,
        where: Where | Sequence[Where | None] | None = None,
        *,
        explain: bool = False,
    ) -> Candidates:
        """Return the candidates of requests in order of arrival.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several, for any n. Prices change after every
            ``batch_size`` requests, within a call as across calls. A call that fails counts nothing.
        exclude
            For each request the ids that it must not get, such as those that the user has seen; unknown ids are counted
            (`Candidates.unknown_excluded`) and ignored. Or a scipy sparse matrix of (requests, items).
        where
            Conditions on attributes that candidates must meet, one dict for all requests or one for each; see
            :meth:`Catalog.select`. A condition that no item meets is refused.
        explain
            Whether `Candidates.explain` can say why the candidates are there. The call takes up to twice as long.

        Examples
        --------
        >>> catalog = Catalog(np.eye(3), {"category": ["a", "b", "b"], "in_stock": [True, True, False]})
        >>> retriever = FairRetriever(catalog, k=2)
        >>> found = retriever.retrieve(np.ones((2, 3)), exclude=[[0], []], where={"in_stock": True})
        >>> found.ids.tolist(), found.short.tolist()
        ([[1, -1], [0, 1]], [True, False])
        """
        with self._lock:
            self._check_open()
            catalog, vectors = self.catalog, check_users(users, self.catalog)
            terms, policy, n = self.terms, self.policy, len(vectors)
            rules = make_rules(exclude, where, catalog, n)
            vectors, cold = self._cold.fill(vectors, catalog)
            fixed = self._cold.fixed_list(cold, catalog)
            rows, relevance = np.empty((n, terms.k), dtype=np.int64), np.empty((n, terms.k))
            searched, plain, entries = np.empty(n), np.full(n, np.nan), list[Entry]()
            state, start, limited = self._state, 0, 0
            counted = None if self.count_cold or cold is None else np.flatnonzero(~cold)
            waiting = n if counted is None else len(counted)
            explained: list[Explainable | None] = [None] * n
            while start < waiting:
                state = state.begin(terms, policy)
                batch = state.next_batch(terms, policy, waiting - start)
                here = slice(start, start + batch.requests)
                places = here if counted is None else counted[here]
                served = self._serve(batch, vectors, places, rules, fixed, explained if explain else None)
                state, entry = state.record(policy, served)
                rows[places], relevance[places] = served.hits.rows, served.hits.relevance
                searched[places] = served.searched
                plain[places] = np.nan if served.plain is None else served.plain
                limited += served.limited
                if entries and not entry.opens_horizon:
                    entry = entries.pop().plus(entry)
                entries.append(entry)
                start += batch.requests
            uncounted = np.empty(0, dtype=np.int64) if self.count_cold or cold is None else np.flatnonzero(cold)
            for first in range(0, len(uncounted), terms.batch_size):
                places = uncounted[first : first + terms.batch_size]
                batch = uncounted_batch(len(places), terms.k, self._commitment.searched)
                served = self._serve(batch, vectors, places, rules, fixed, explained if explain else None)
                rows[places], relevance[places] = served.hits.rows, served.hits.relevance
                searched[places] = served.searched
                plain[places] = np.nan if served.plain is None else served.plain
            if entries:
                self.ledger.record(entries)
            self._state = state
            self.limited_requests += limited
            self._cold.observe(vectors, cold)
            self._saver.save_if_due(terms, state)
        unknown = None if rules is None else rules.unknown
        list_first = None if fixed is None else fixed.places
        found = Candidates.of(catalog, rows, relevance, searched, unknown, cold, list_first, plain)
        return replace(found, explained=tuple(explained)) if explain else found

    def calibrate(self, past_users: npt.ArrayLike) -> "FairRetriever":
        """Learn prices from past requests, so that the first batch is already well priced. Nothing is counted.

        Parameters
        ----------
        past_users
            (n, d) or (n, interests, d): user vectors of similar requests, latest last. A few hundred help, a few
            thousand are plenty. Cold requests are then answered by their mean, until later ones take their place.

        Returns
        -------
        FairRetriever
            This retriever.
        """
        with self._lock:
            self._check_open()
            searched = self._commitment.searched
            self._state = calibrate(self._state, self.terms, self.policy, searched, self.index, past_users)
            past = check_users(past_users, self.catalog)
            self._cold.observe(past, is_cold(past))
            self._saver.save_if_due(self.terms, self._state)
        return self

    def upsert(
        self,
        embeddings: npt.ArrayLike | None,
        groups: Sequence[Label] | npt.NDArray[Any] | Mapping[str, Any] | DataFrame,
        ids: Sequence[Label] | npt.NDArray[Any],
        floors: Floors | None = None,
        promises: Sequence[Promise] | None = None,
    ) -> None:
        """Add items, or change the embedding, group and other attributes of those whose ids are known.

        The change takes effect with the next request. Collect changes into one call: each call copies the embeddings,
        unless only attributes change: ``upsert(None, {"in_stock": [False]}, ["x"])`` touches no vector.

        Parameters
        ----------
        embeddings, groups, ids
            As in :class:`Catalog`, and None to keep the embeddings. A new label becomes a group, which has no floor
            unless one is given. Attributes that are left out stay as they are.
        floors, promises
            New floors or promises; see :meth:`promise`. By default they stay as they are; a new label of an attribute
            gets the promise that :func:`fairsync.each` made to the others.
        """
        self._change(lambda catalog: upsert_items(catalog, embeddings, groups, ids), floors, promises)

    def remove(
        self,
        ids: Sequence[Label] | npt.NDArray[Any],
        floors: Floors | None = None,
        promises: Sequence[Promise] | None = None,
    ) -> None:
        """Remove items, from the next request on.

        A group without items stays in the report with its exposures so far. It can get no more, so that a floor that it
        has not met must be lowered in the same call.

        Parameters
        ----------
        ids
            Ids of the items.
        floors, promises
            New floors or promises; see :meth:`promise`. By default they stay as they are.
        """
        self._change(lambda catalog: remove_items(catalog, ids), floors, promises)

    def replace(
        self,
        catalog: Catalog,
        index: str | Callable[[Catalog], Index] | None = None,
        floors: Floors | None = None,
        cold: Cold | None = None,
        promises: Sequence[Promise] | None = None,
    ) -> None:
        """Continue with another catalog: a new version of the model, or an index that was rebuilt.

        Exposures and floors stay with their labels. The policy starts again, because it has learnt from other scores:
        `calibrate` it with past requests of the new model, if there are any.

        Parameters
        ----------
        catalog
            All items, with the embeddings of the new model.
        index
            A name, or a function of the catalog. Defaults to an index of the present kind with the same settings.
        floors, promises
            New floors or promises from now on. Defaults to the present ones; see :meth:`promise`.
        cold
            The fallback for cold requests from now on: a given vector belongs to the old model. Defaults to the present
            one. The mean of the latest user vectors starts again.
        """
        with self._lock:
            under = check_catalog(catalog).under(self.catalog.labels)
            start = ColdStart(under, self._cold.fallback if cold is None else cold)
            self._check_open()
            accepted = self._accept(under, floors, promises, start=self.policy.start)
            made = replace_index(self.index, index, accepted.commitment.searched)
            self._swap(accepted, made)
            self._cold = start
            if index is not None:
                self._given = (self._given[0], index if isinstance(index, str) else made)

    def promise(
        self,
        floors: Floors | None = None,
        horizon: int | None = None,
        promises: Sequence[Promise] | None = None,
    ) -> None:
        """Change the floors, or the promises, of the horizon under way and of all later ones.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}; groups that are not named get no floor.
        horizon
            Requests over which they are spread, from the start of the horizon under way. By default it stays as it is.
        promises
            All promises from now on, if the retriever was made with promises. One with the name of a present promise
            takes its place and keeps its exposures; a new one counts from now on.
        """
        with self._lock:
            self._check_open()
            before, index = self._commitment, self.index
            accepted = self._accept(self.catalog, floors, promises, horizon)
            if before.resolved is not None:  # another horizon, too, may add a promise: every slot
                unchanged = CatalogChange(self.catalog, np.arange(len(self.catalog)))
                change = before.searched_change(unchanged, accepted.commitment)
                index = follow(index, change, before.searched)
            self._swap(accepted, index)

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return a report on the promise: exposures, floors, prices and cost.

        Parameters
        ----------
        hindsight
            The best possible plan for the same requests, to compare the cost with.
        """
        with self._lock:
            state, past, labels, terms = self._state, self.ledger.past(), self._commitment.labels, self.terms
        prices, costs = state.prices_in_force(terms, self.policy), state.price_state.costs
        slots, gave_way = state.price_state.all_slots, find_given_way(labels, terms, state)
        return make_report(
            labels, terms, self.policy.name, state.progress.totals, past, prices, hindsight, costs, slots, gave_way
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save catalog, promise, counts, and what the policy has learnt to a folder, atomically; see :meth:`load`.

        Use it to move a retriever to another process or machine. To survive its process, a durable ledger is enough.

        Parameters
        ----------
        folder
            The folder to create, or a folder with a saved retriever, which is replaced.
        """
        from fairsync.saved_retriever import SavedColdStart, SavedRetriever  # here, because it needs polars

        with self._lock:
            prices, past = SavedPrices.of(self.terms, self._state), tuple(self.ledger.past())
            start = SavedColdStart(self._cold.fallback, self.count_cold, self._cold.recent())
            word = "give way" if self._commitment.gives_way else "refuse"
            saved = SavedRetriever(self.catalog, *self._given, prices, past, start, self.promises, word, self.budget)
        saved.write(folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        policy: str | Policy | None = None,
        index: str | Callable[[Catalog], Index] | None = None,
        ledger: str | Ledger | None = None,
        save_seconds: float = 5.0,
    ) -> "FairRetriever":
        """Load a retriever from a folder. It answers and reports exactly as the saved one would have.

        (An approximate index is built again: after changes of items it may find other items than the saved one.)

        Parameters
        ----------
        folder
            The folder that `save` has written.
        policy, index
            A policy, and the name of an index or a function of the catalog, in place of the saved ones. They are needed
            if those were objects and no names.
        ledger, save_seconds
            As for :class:`FairRetriever`. The counts are copied to the ledger, unless it holds the same ones.

        Examples
        --------
        >>> import tempfile
        >>> retriever = FairRetriever(Catalog(np.eye(4), ["a", "a", "b", "b"]), k=2, floors=5, horizon=10)
        >>> _ = retriever.retrieve(np.ones((6, 4)))
        >>> folder = tempfile.mkdtemp()
        >>> retriever.save(folder)
        >>> FairRetriever.load(folder).report() == retriever.report()
        True
        """
        from fairsync.saved_retriever import SavedRetriever  # here, because it needs polars

        saved = SavedRetriever.read(folder, policy, index)
        terms = saved.prices.terms
        opened = open_ledger(ledger or MEMORY, len(terms.floors)) if ledger is None or isinstance(ledger, str) else None
        try:
            made = cls._restored(saved, cast("Ledger", ledger if opened is None else opened), save_seconds)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        made._owns_ledger = opened is not None
        return made

    @classmethod
    def _restored(cls, saved: "SavedRetriever", ledger: Ledger, save_seconds: float) -> "FairRetriever":
        """Return a saved retriever over a ledger that has its counts, or gets them."""
        terms = saved.prices.terms
        saved.copy_counts(ledger)
        promises: Any = None if saved.promises is None else restore_promises(saved.catalog, saved.promises, terms)
        made = cls(
            saved.catalog, k=terms.k, horizon=terms.horizon, batch_size=terms.batch_size, promises=promises,
            policy=saved.policy, index=saved.index, ledger=ledger, save_seconds=save_seconds,
            count_cold=saved.cold_start.counts, if_infeasible=saved.if_infeasible,
            budget=saved.budget,
        )  # fmt: skip
        made._cold = ColdStart.restored(saved.catalog, saved.cold_start.fallback, saved.cold_start.recent)
        if saved.promises is None:
            # Not as an argument: floors that an outage has put out of reach would be refused.
            made._commitment = replace(made._commitment, terms=terms)
            made._state = replace(
                made._state,
                price_state=saved.prices.price_state,
                spending=saved.prices.spending,
                in_force=terms_in_force(terms, None, saved.prices.spending),
            )
        else:
            made._state = saved.prices.restored(made.policy, made.terms, made._state)
        return made

    def close(self) -> None:
        """Save what the policy has learnt in the ledger, and refuse further requests.

        A ledger that was given as an object stays open.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._saver.save(self.terms, self._state)
                if self._owns_ledger:
                    self.ledger.close()

    def __repr__(self) -> str:
        terms, requests = self.terms, self._state.progress.totals.requests
        floors = f"floors of {count(int(np.count_nonzero(terms.floors)), 'group')}"
        what = floors if self.promises is None else count(len(self.promises), "promise")
        return (
            f"FairRetriever({self.catalog}, k={terms.k}, policy={self.policy.name!r}, "
            f"index={type(self.index).__name__}, batch_size={terms.batch_size}, "
            f"{what}, {requests:,} of {terms.horizon:,} requests)"
        )

    def _serve(
        self,
        batch: Batch,
        vectors: npt.NDArray[np.floating[Any]],
        places: slice | npt.NDArray[np.int64],
        rules: Rules | None,
        fixed: FixedList | None,
        explained: list[Explainable | None] | None,
    ) -> ServedBatch:
        """Answer the requests of a call at these places, under their own rules; write their explanations, if any."""
        at = range(places.start, places.stop) if isinstance(places, slice) else places.tolist()
        eligible = None if rules is None else rules.eligibility_of(at)
        listed = None if fixed is None else fixed.take(places)
        served = serve(
            batch,
            self._commitment.searched,
            self.index,
            vectors[places],
            eligible,
            listed,
            explain=explained is not None,
        )
        if explained is not None and served.trace is not None:
            for place, one in zip(at, explain_requests(served.trace, self._commitment.labels), strict=True):
                explained[place] = one
        return served

    def _check_open(self) -> None:
        if self._closed:
            raise FairSyncError("The retriever is closed: make another one over the same ledger, which continues.")

    def _change(
        self,
        change: Callable[[Catalog], CatalogChange],
        floors: Floors | None,
        promises: Sequence[Promise] | None,
    ) -> None:
        with self._lock:
            self._check_open()
            changed, before = change(self.catalog), self._commitment
            accepted = self._accept(changed.catalog, floors, promises, may_be_late=promises is None)
            index = follow(self.index, before.searched_change(changed, accepted.commitment), before.searched)
            self._swap(accepted, index)

    def _accept(
        self,
        catalog: Catalog,
        floors: Floors | None,
        promises: Sequence[Promise] | None,
        horizon: int | None = None,
        start: Callable[[Terms], Any] | None = None,
        *,
        may_be_late: bool = False,
    ) -> "_Accepted":
        """Return what is promised after a change, or refuse it if that cannot be kept. Nothing is changed yet.

        A change can make floors certain that were only expected, and for which too few requests are left. It is not
        refused for them: then they stay expected until the next change.
        """
        before = self._commitment

        def accept(*, is_steady: bool) -> _Accepted:
            after = before.changed(catalog, floors, promises, horizon, is_steady=is_steady)
            state, entry = self._state.with_every_slot(after.labels, after.terms)
            late = may_be_late and after.has_late_promises(before)
            state = state.under(
                after.terms, self.policy, before.terms, start, gives_way=after.gives_way, late=late, names=after.names
            )
            return _Accepted(after, state, entry)

        try:
            return accept(is_steady=False)
        except (InfeasibleFloorsError, InvalidInputError):  # or lists that might not be filled
            if before.terms.certain is not None or before.terms.home is not None:
                with suppress(FairSyncError):
                    return accept(is_steady=True)
            raise

    def _swap(self, accepted: "_Accepted", index: Index) -> None:
        """Replace the items or the promises."""
        after = accepted.commitment
        if len(after.labels) > len(self._commitment.labels):
            save_labels(self.ledger, after.labels)
            self.ledger.grow(len(after.labels))
        if accepted.entry is not None:
            self.ledger.record([accepted.entry])
        self._commitment, self.index, self._state = after, index, accepted.state


class _Accepted(NamedTuple):
    """What is promised after a change, the state of the loop under it, and what is to be recorded, if anything is."""

    commitment: Commitment
    state: LoopState
    entry: Entry | None
