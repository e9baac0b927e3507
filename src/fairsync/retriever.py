"""The loop: prices to the search, counts to the ledger, and after every batch back to the policy."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync import guard
from fairsync.catalog import Catalog, Label
from fairsync.changes import Change, put_items, remove_items
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.floors import Floors, check_feasible, group_caps, resolve_floors
from fairsync.hindsight import Hindsight
from fairsync.inputs import check_k, check_positive, check_users
from fairsync.ledger import Entry, Ledger, MemoryLedger, Standing
from fairsync.policies import Feedback, Policy, Sample, Terms, make_policy
from fairsync.report import Report, make_report
from fairsync.search import Hits, Index, make_index
from fairsync.search.overlay import follow

# Past requests are searched again while prices move; they settle within a few rounds.
_CALIBRATION_ROUNDS = 4


@dataclass(frozen=True)
class Found:
    """The candidates of some requests, best relevance first.

    Attributes
    ----------
    ids : numpy.ndarray
        (n, k) item ids.
    groups : numpy.ndarray
        (n, k) group labels.
    relevance : numpy.ndarray
        (n, k) relevance, without the price.
    """

    ids: npt.NDArray[Any]
    groups: npt.NDArray[Any]
    relevance: npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Loop:
    """Where the loop stands. It is never changed, only replaced: a call that fails leaves no trace.

    ``counts``, ``requests`` and ``samples`` are of the batch under way.
    """

    policy_state: Any
    prices: npt.NDArray[np.float64]
    standing: Standing
    counts: npt.NDArray[np.int64]
    requests: int = 0
    samples: tuple[Sample, ...] = ()
    opens_horizon: bool = False


class FairRetriever:
    """Retrieves candidates so that every group gets at least its floor of exposures over the horizon.

    Parameters
    ----------
    catalog
        The items.
    k
        Candidates per request.
    floors
        Minimum exposures of every group in the horizon: one number for all, or {label: number}.
    horizon
        Requests over which the floors are spread. After so many, counts start anew and prices carry on.
    policy
        ``"guaranteed"`` (floors hold, nothing to tune), ``"fairsync"`` (the paper's), ``"none"``, one of the paper's
        baselines (``"regularized-fair"``, ``"ipw"``, ``"k-neighbor"``, ``"uncalibrated"``), or a policy object.
    batch_size
        Requests between two price changes.
    index
        ``"exact"``, ``"one-hot"``, or an index object.
    ledger
        Where exposures are recorded; in memory unless given.

    Examples
    --------
    Everybody prefers red; blue is promised 30 of the 200 slots.

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
    """

    def __init__(
        self,
        catalog: Catalog,
        k: int = 20,
        floors: Floors = 0,
        horizon: int = 10_000,
        policy: str | Policy = "guaranteed",
        batch_size: int = 16,
        index: str | Index = "exact",
        ledger: Ledger | None = None,
    ) -> None:
        k = check_k(k, catalog)
        horizon = check_positive(horizon, "horizon")
        batch_size = check_positive(batch_size, "batch_size")
        resolved = resolve_floors(floors, catalog)
        check_feasible(resolved, catalog, k, horizon)
        self.catalog = catalog
        self.terms = Terms(resolved, group_caps(catalog, k), k, horizon, batch_size)
        self.policy = make_policy(policy)
        self.index = make_index(index, catalog)
        self.ledger: Ledger = MemoryLedger(catalog.n_groups) if ledger is None else ledger
        self._lock = threading.Lock()
        self._none = np.zeros(catalog.n_groups, dtype=np.int64)
        standing = self._checked_standing()
        state = self.policy.start(self.terms)
        self._loop = _Loop(state, self.policy.prices(state), standing, self._none)

    def retrieve(self, users: npt.ArrayLike) -> Found:
        """Return the candidates of requests in order of arrival.

        Parameters
        ----------
        users
            (n, d) one vector per request, or (n, interests, d) several. Any n: the prices change after every
            ``batch_size`` requests, inside a call as across calls. A call that fails leaves no trace.
        """
        with self._lock:
            catalog, vectors = self.catalog, check_users(users, self.catalog)
            n, k = len(vectors), self.terms.k
            rows, relevance = np.empty((n, k), dtype=np.int64), np.empty((n, k))
            loop, start = replace(self._loop, standing=self.ledger.standing()), 0
            entries: list[Entry] = []
            while start < n:
                loop = self._turn(loop)
                size = min(
                    n - start,
                    self.terms.batch_size - loop.requests,
                    self.terms.horizon - loop.standing.requests,
                )
                here = slice(start, start + size)
                loop, entry, found = self._serve(loop, vectors[here])
                rows[here], relevance[here] = found.rows, found.relevance
                if entries and not entry.opens_horizon:
                    entry = entries.pop().plus(entry)
                entries.append(entry)
                start += size
            self.ledger.record(entries)
            self._loop = loop
        best_first = np.lexsort((rows if catalog.rank is None else catalog.rank[rows], -relevance))
        in_order = (np.arange(n)[:, None], best_first)
        rows = rows[in_order]
        return Found(catalog.ids_of(rows), catalog.labels_of(catalog.group_of[rows]), relevance[in_order])

    def calibrate(self, past_users: npt.ArrayLike) -> "FairRetriever":
        """Learn prices from past requests, so that the first batch is already well priced. Nothing is counted.

        Parameters
        ----------
        past_users
            (n, d) or (n, interests, d): requests like those to come, latest last. A few hundred help, a few
            thousand are plenty.

        Returns
        -------
        FairRetriever
            This retriever.
        """
        learn = getattr(self.policy, "calibrate", None)
        if learn is None:
            raise InvalidInputError(f"The policy {self.policy.name!r} has nothing to calibrate; use 'guaranteed'.")
        with self._lock:
            vectors = check_users(past_users, self.catalog)[-self.policy.memory :]
            if len(vectors) == 0:
                raise InvalidInputError("past_users is empty: give at least one past request.")
            loop = self._loop
            remaining, exposures = self.terms.horizon - loop.standing.requests, loop.standing.exposures
            if remaining == 0:  # the horizon is over: these are prices for the next one
                remaining, exposures = self.terms.horizon, self._none
            width = self._width(self.policy.start(self.terms))  # as deep as at a cold start
            for _ in range(_CALIBRATION_ROUNDS):
                hits = self.index.search(vectors, loop.prices, width)
                sample = self._sample(self.catalog.group_of[hits.rows], hits)
                state = learn(loop.policy_state, self.terms, Feedback(0, self._none, exposures, remaining, sample))
                loop = replace(loop, policy_state=state, prices=self.policy.prices(state))
            # Lists of the batch under way were made for the state before: of another depth, and already old.
            self._loop = replace(loop, samples=())
        return self

    def put(
        self,
        embeddings: npt.ArrayLike,
        groups: Sequence[Label] | npt.NDArray[Any],
        ids: Sequence[Label] | npt.NDArray[Any],
        floors: Floors | None = None,
    ) -> None:
        """Add items, or replace those whose ids are known: another embedding, another group.

        It takes effect from the next request on. Gather changes into one call: each copies the catalog's embeddings.

        Parameters
        ----------
        embeddings, groups, ids
            As in :class:`Catalog`. A label that is new becomes a group, which has no floor unless one is given.
        floors
            New floors from now on, where the old ones are not to stay; see :meth:`promise`.
        """
        self._change(lambda catalog: put_items(catalog, embeddings, groups, ids), floors)

    def remove(self, ids: Sequence[Label] | npt.NDArray[Any], floors: Floors | None = None) -> None:
        """Take items out, from the next request on.

        A group that has lost its last item stays in the report with what it has had. It cannot get more: if it was
        promised anything, it must be released from its floor in the same call.

        Parameters
        ----------
        ids
            Known ids.
        floors
            New floors from now on, where the old ones are not to stay; see :meth:`promise`.
        """
        self._change(lambda catalog: remove_items(catalog, ids), floors)

    def replace(
        self, catalog: Catalog, index: str | Callable[[Catalog], Index] = "exact", floors: Floors | None = None
    ) -> None:
        """Go on with another catalog: a new version of the model, or an index built anew.

        Exposures and floors stay with their labels. What the policy has learnt is forgotten, since it was learnt on
        other scores: `calibrate` with past requests of the new model, if there are any.

        Parameters
        ----------
        catalog
            All items, with the embeddings of the new model.
        index
            A name, or a function of the catalog.
        floors
            New floors from now on, where the old ones are not to stay; see :meth:`promise`.
        """
        with self._lock:
            under = catalog.under(self.catalog.labels)
            made = index(under) if callable(index) else make_index(index, under)
            self._swap(under, made, floors, self.policy.start)

    def promise(self, floors: Floors) -> None:
        """Promise other floors, in the present horizon and those to come.

        Parameters
        ----------
        floors
            One number for all groups, or {label: number}; groups that are not named are promised nothing.
        """
        with self._lock:
            self._swap(self.catalog, self.index, floors)

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands.

        Parameters
        ----------
        hindsight
            The best possible plan for the same requests, to compare the cost with.
        """
        with self._lock:
            standing, past, prices = self.ledger.standing(), self.ledger.past(), self._loop.prices
        if self.policy.keeps_floors:  # a subsidy ends with its floor
            prices = np.where((standing.exposures >= self.terms.floors) & (prices < 0), 0.0, prices)
        return make_report(self.catalog.labels, self.terms, self.policy.name, standing, past, prices, hindsight)

    def _change(self, change: Callable[[Catalog], Change], floors: Floors | None) -> None:
        with self._lock:
            changed = change(self.catalog)
            self._swap(changed.catalog, follow(self.index, changed, self.catalog), floors)

    def _swap(
        self,
        catalog: Catalog,
        index: Index,
        floors: Floors | None,
        restart: Callable[[Terms], Any] | None = None,
    ) -> None:
        """Go on with these; whatever cannot be kept is refused before anything is changed."""
        if floors is None:
            known = dict(zip(self.catalog.labels, self.terms.floors.tolist(), strict=True))
            resolved = np.array([known.get(label, 0) for label in catalog.labels], dtype=np.int64)
        else:
            resolved = resolve_floors(floors, catalog)
        k, horizon = check_k(self.terms.k, catalog), self.terms.horizon
        check_feasible(resolved, catalog, k, horizon)
        terms = replace(self.terms, floors=resolved, caps=group_caps(catalog, k))
        standing = self.ledger.standing().grown(catalog.n_groups)
        self._check_reachable(terms, standing)
        state = self.policy.resume(self._loop.policy_state, terms) if restart is None else restart(terms)
        # Lists of the batch under way are of other items: what they would teach is no longer so.
        counts = np.concatenate([self._loop.counts, np.zeros(catalog.n_groups - len(self._none), dtype=np.int64)])
        loop = replace(
            self._loop,
            policy_state=state,
            prices=self.policy.prices(state),
            standing=standing,
            counts=counts,
            samples=(),
        )
        if catalog.n_groups > len(self._none):
            self.ledger.grow(catalog.n_groups)
        self.catalog, self.index, self.terms, self._loop = catalog, index, terms, loop
        self._none = np.zeros(catalog.n_groups, dtype=np.int64)

    def _turn(self, loop: _Loop) -> _Loop:
        """Open a new horizon, or a new batch, if the last one is over."""
        over = loop.standing.requests == self.terms.horizon
        if not over and loop.requests < self.terms.batch_size:
            return loop
        standing = Standing.nothing(self.catalog.n_groups) if over else loop.standing
        left = self.terms.horizon - standing.requests
        sample = Sample.join(loop.samples, keep=self.policy.memory) if loop.samples else None
        feedback = Feedback(loop.requests, loop.counts, standing.exposures, left, sample)
        state = self.policy.step(loop.policy_state, self.terms, feedback)
        return _Loop(state, self.policy.prices(state), standing, self._none, opens_horizon=over)

    def _serve(self, loop: _Loop, users: npt.NDArray[np.floating[Any]]) -> tuple[_Loop, Entry, Hits]:
        """Find the candidates of requests that share one price vector."""
        k, n_groups, prices = self.terms.k, self.catalog.n_groups, loop.prices
        width = self._width(loop.policy_state)
        hits = self.index.search(users, prices, width)
        if hits.rows[:, k - 1].min() < 0:
            raise FairSyncError(
                f"The policy {self.policy.name!r} masked so many groups that fewer than k = {k} items were left."
            )
        groups = self.catalog.group_of[hits.rows]
        found, forced = Hits(hits.rows[:, :k], hits.relevance[:, :k]), 0
        counts = np.bincount(groups[:, :k].ravel(), minlength=n_groups)
        if self.policy.keeps_floors:
            missing = np.maximum(self.terms.floors - loop.standing.exposures, 0)
            left = self.terms.horizon - loop.standing.requests
            if guard.needs_guard(self.terms, missing, prices, counts, len(users), left):
                found, forced = guard.keep_floors(
                    lambda i, p, n: self.index.search(users[i : i + 1], p, n),
                    self.catalog, self.terms, prices, hits, missing, left,
                )  # fmt: skip
                counts = np.bincount(self.catalog.group_of[found.rows].ravel(), minlength=n_groups)
        relevance = float(found.relevance.sum())
        # Rounding can take it below 0. What was not measured stays nan: np.maximum passes that on, max() does not.
        cost = float(np.maximum(self._most_relevance(prices, hits, groups) - relevance, 0.0))
        entry = Entry(counts, len(users), relevance, cost, forced, loop.opens_horizon)
        watched = width > k and self.policy.watches(loop.policy_state)
        after = _Loop(
            loop.policy_state,
            prices,
            loop.standing.after(entry),
            loop.counts + counts,
            loop.requests + len(users),
            self._samples(loop.samples, groups, hits) if watched else (),
        )
        return after, entry, found

    def _width(self, policy_state: Any) -> int:
        """Return how long the lists must be: the candidates, and what the policy wants to see beyond them."""
        return min(len(self.catalog), self.terms.k + self.policy.lookahead(policy_state, self.terms.k))

    def _sample(self, groups: npt.NDArray[np.int32], hits: Hits) -> Sample:
        """Return what a policy may see of lists."""
        beyond_last = hits.relevance - hits.relevance[:, self.terms.k - 1, None]
        return Sample(groups.astype(np.intp), np.clip(beyond_last, -1e30, 1e30).astype(np.float32))

    def _samples(self, before: tuple[Sample, ...], groups: npt.NDArray[np.int32], hits: Hits) -> tuple[Sample, ...]:
        """Return the lists of a batch with some more; of a very long batch only what can still matter."""
        samples = (*before, self._sample(groups, hits))
        return samples if len(samples) < 512 else (Sample.join(samples, keep=self.policy.memory),)

    def _checked_standing(self) -> Standing:
        """Return where the ledger's horizon stands, if it is one that this retriever can go on with."""
        standing = self.ledger.standing()
        if len(standing.exposures) != self.catalog.n_groups:
            raise InvalidInputError(
                f"The ledger counts {len(standing.exposures)} groups, the catalog has {self.catalog.n_groups}:"
                " it belongs to another catalog."
            )
        self._check_reachable(self.terms, standing)
        return standing

    def _check_reachable(self, terms: Terms, standing: Standing) -> None:
        """Refuse floors that can no longer be met in the horizon under way."""
        left = terms.horizon - standing.requests
        missing = np.maximum(terms.floors - standing.exposures, 0)
        if left < 0 or (left > 0 and self.policy.keeps_floors and not guard.is_safe(missing, left, terms)):
            raise InvalidInputError(
                f"The horizon has had {standing.requests} requests and misses {int(missing.sum())} exposures: the"
                f" floors cannot be met by request {terms.horizon}. Lower them, lengthen the horizon, or start with a"
                " new ledger."
            )

    def _most_relevance(self, prices: npt.NDArray[np.float64], hits: Hits, groups: npt.NDArray[np.int32]) -> float:
        """Return the relevance that these requests could have had without prices, at most; nan if that is not known.

        The best k may lie outside the list, but no item there has more relevance than the list's last score plus the
        highest price: with that as a stand-in the sum is never too low. Where prices suit the data it is hardly
        ever too high either.
        """
        k, width = self.terms.k, hits.rows.shape[1]
        if not prices.any():
            return float(hits.relevance[:, :k].sum())
        if width == k < len(self.catalog) or np.isinf(prices).any():  # of masked items the list says nothing
            return float("nan")
        best = np.partition(hits.relevance, width - k, axis=1)[:, width - k :]
        if width < len(self.catalog):
            last = hits.relevance[:, -1] - prices[groups[:, -1]]
            np.maximum(best, (last + float(prices.max()))[:, None], out=best)
        return float(best.sum())
