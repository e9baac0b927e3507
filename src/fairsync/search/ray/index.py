"""An index over shards on a Ray cluster, each of them replicated on several nodes."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.extras import explain_missing

with explain_missing("RayIndex"):
    import ray

from fairsync.catalog.files import Fingerprint, StoredCatalog
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.base import Hits, check_prices
from fairsync.search.ray.actor_names import NamedIndex, check_connected, check_name, find_index
from fairsync.search.ray.deployment import Resources, deploy, end_named, wait_until_loaded
from fairsync.search.ray.hedging import HedgeDelay, HedgedQuery
from fairsync.search.ray.messages import Query
from fairsync.search.ray.replicas import Replica, ReplicaHealth, Replicas
from fairsync.search.ray.shard import make_source
from fairsync.search.sharded import check_placement, merge, place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from fairsync.catalog import Catalog
    from fairsync.search.base import Index
    from fairsync.search.eligibility import Eligibility
    from fairsync.search.ray.deployment import Deployment
    from fairsync.search.ray.shard import ReplicaState

# Seconds that a health check of all replicas may take.
_HEALTH_SECONDS = 1.0


class RayIndex:
    """Search shards on a Ray cluster and merge the answers. With exact shards the answer is that of one exact index.

    Call ``ray.init(address=...)`` first. Shards load a catalog from `open_catalog` from its files, which every node
    must be able to read at the same path; any other catalog is sent to them through Ray's object store.

    A replica that fails or is slow is replaced by another replica of its shard (failover and hedged requests). If a
    shard has no replica left, the answer is degraded: it comes from the other shards, and `Hits.reached` says so. A
    replica that was down is used again once it has answered a ping.

    Parameters
    ----------
    catalog
        The items to search.
    shards
        The number of shards.
    replicas
        The number of replicas of each shard, on different nodes.
    index
        The index of each shard: a name, or a function of its part of the catalog.
    placement
        (n,) the shard of each item, from 0. Defaults to a hash of the id. A shard may be empty.
    deadline
        Seconds that a search may take. A replica that has not answered by then counts as down.
    hedge
        Seconds after which another replica of a shard is asked too. Defaults to ten times the median latency.
    cpus, memory
        The resources of each replica: processors, and bytes of memory if Ray should account for them.
    name
        The name under which other processes can `attach`. The shards of a named index live until `close` or `end`, also
        when this process has ended. The catalog must come from `open_catalog`, and items are placed by their ids.
    place_within, load_within
        Seconds until the cluster must have room for all replicas, and until all must have loaded their items.
    """

    applies_prices: str

    def __init__(
        self,
        catalog: Catalog,
        shards: int = 4,
        replicas: int = 1,
        index: str | Callable[[Catalog], Index] = "exact",
        placement: npt.ArrayLike | None = None,
        deadline: float = 5.0,
        *,
        hedge: float | None = None,
        cpus: float = 1.0,
        memory: int | None = None,
        name: str | None = None,
        place_within: float = 30.0,
        load_within: float = 600.0,
    ) -> None:
        for what, number in (("shards", shards), ("replicas", replicas)):
            if number < 1:
                raise InvalidInputError(f"{what} must be at least 1, got {number}.")
        for what, amount in (("cpus", cpus), ("place_within", place_within), ("load_within", load_within)):
            if not amount > 0:
                raise InvalidInputError(f"{what} must be more than 0, got {amount}.")
        _check_deadline(deadline, hedge)
        placed = None if placement is None else check_placement(placement, len(catalog), shards)
        check_connected()
        named = None
        if name is not None:
            _check_nameable(name, catalog, placement)
            named = NamedIndex(name, str(Fingerprint.of(catalog)), shards, replicas)
        rows = _rows_by_shard(place(catalog, shards) if placed is None else placed, shards)
        sources = {
            number: make_source(catalog, held, number, shards, placed is not None) for number, held in rows.items()
        }
        resources = Resources(cpus, memory)
        self._deployment: Deployment | None = deploy(sources, replicas, index, resources, named, place_within)
        try:
            states = wait_until_loaded(self._deployment.actors, load_within)
        except BaseException:
            self._deployment.end()
            raise
        # Ray keeps items in its store while a reference to them exists: a shard that is restarted loads them again.
        self._sources = sources
        self._rebuild: Callable[[Catalog], RayIndex] | None = None
        if name is None and placement is None:
            self._rebuild = partial(
                RayIndex,
                shards=shards,
                replicas=replicas,
                index=index,
                deadline=deadline,
                hedge=hedge,
                cpus=cpus,
                memory=memory,
                place_within=place_within,
                load_within=load_within,
            )
        self._open(catalog, rows, self._deployment.actors, states, deadline, hedge)

    @classmethod
    def attach(cls, name: str, catalog: Catalog, deadline: float = 5.0, hedge: float | None = None) -> RayIndex:
        """Return an index over shards that another process started under a name.

        Parameters
        ----------
        name
            The name of the index.
        catalog
            The catalog that the shards hold. Another catalog is refused.
        deadline, hedge
            As for the class. Every process has its own.
        """
        _check_deadline(deadline, hedge)
        check_connected()
        found = find_index(name)
        if found is None:
            raise InvalidInputError(
                f"there is no index {name!r} on this cluster: start it with RayIndex(..., name=...)."
            )
        named, replicas = found
        fingerprint = str(Fingerprint.of(catalog))
        if named.fingerprint != fingerprint:
            raise InvalidInputError(
                f"the index {name!r} holds another catalog ({named.fingerprint}) than the one given ({fingerprint}):"
                " open the one that its shards were started with."
            )
        rows = _rows_by_shard(place(catalog, named.shards), named.shards)
        pairs = [(number, at) for number in rows for at in range(named.replicas)]
        lost = [pair for pair in pairs if pair not in replicas]
        if lost:
            raise BackendUnavailableError(
                f"The index {name!r} is being started or ended (shard {lost[0][0]} has no replica {lost[0][1]} now):"
                " try again in a moment."
            )
        pings = {pair: replicas[pair].ready.remote() for pair in pairs}
        ray.wait(list(pings.values()), num_returns=len(pings), timeout=deadline)
        answered = {pair: _state(ping) for pair, ping in pings.items()}
        if not any(answered.values()):
            raise BackendUnavailableError(f"No shard of {name!r} answers within {deadline:g} s: try again later.")
        actors, states = (
            {number: [those[number, at] for at in range(named.replicas)] for number in rows}
            for those in (replicas, answered)
        )
        index = cls.__new__(cls)
        index._deployment = index._rebuild = None
        index._open(catalog, rows, actors, states, deadline, hedge)
        return index

    @staticmethod
    def end(name: str) -> bool:
        """End the shards of a named index, from any process; return whether there were any."""
        check_connected()
        return end_named(name)

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`.

        Raises
        ------
        BackendUnavailableError
            No shard answered in time. Nothing was changed: search again when some are up.
        """
        users = np.asarray(users)
        if users.ndim != 3 or users.shape[2] != self.catalog.dim or users.dtype.kind != "f":
            raise InvalidInputError(
                f"users must be (n, interests, {self.catalog.dim}) floats, got {users.shape} of {users.dtype}."
            )
        prices = check_prices(prices, self.catalog.n_groups)
        if self._closed:
            raise BackendUnavailableError("This index was closed: make a new one, or attach.")
        query = Query(self._version_of(prices), k, users, prices, eligible)
        asked = HedgedQuery(self._shards, query, len(self.catalog), self._hedge_delay, self._lock)
        answers = asked.run(self._deadline)
        found = [answer for answer in answers if answer is not None]
        if not found:
            raise BackendUnavailableError(
                f"None of {len(answers)} shards answered within {self._deadline:g} s: see health(), and ask again when"
                " some are up."
            )
        merged = merge(found, self.catalog.group_of, self.catalog.rank, prices, k)
        if len(found) == len(answers):
            return merged
        sizes = [shard.sizes for shard, answer in zip(self._shards, answers, strict=True) if answer is not None]
        return replace(merged, reached=np.sum(sizes, axis=0))

    def health(self) -> list[ReplicaHealth]:
        """Ping every replica, for a second at most, and return one record for each; none if the index is closed."""
        if self._closed:
            return []
        with self._lock:
            pings = [ping for shard in self._shards for ping in shard.ping(time.monotonic())]
        ray.wait(pings, num_returns=len(pings), timeout=min(_HEALTH_SECONDS, self._deadline))
        with self._lock:
            return [record for shard in self._shards for record in shard.collect_pings(time.monotonic())]

    def close(self) -> None:
        """End the shards if this index started them. An attached index leaves them running."""
        self._closed = True
        if self._deployment is not None:
            self._deployment.end()
            self._deployment = None

    def rebuild(self, catalog: Catalog) -> RayIndex:
        """Start shards with the same settings over another catalog; see `rebuild_index`.

        Both indexes need room on the cluster until this one is closed. A named index and one with a placement cannot be
        rebuilt, since the name is taken and the placement fits one catalog only.
        """
        if self._rebuild is None:
            raise InvalidInputError(
                "shards that have a name or a placement= belong to one catalog: start others over the new catalog, and"
                " give index=, such as lambda catalog: RayIndex.attach(name, catalog)."
            )
        return self._rebuild(catalog)

    def __enter__(self) -> RayIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(
        self,
        catalog: Catalog,
        rows: Mapping[int, npt.NDArray[np.int64]],
        actors: Mapping[int, Sequence[Any]],
        states: Mapping[int, Sequence[ReplicaState | None]],
        deadline: float,
        hedge: float | None,
    ) -> None:
        self.catalog, self._deadline, self._closed = catalog, deadline, False
        self._hedge_delay, self._lock = HedgeDelay(deadline, hedge), threading.Lock()
        self._version, self._last_prices = 0, b""
        self._shards = []
        for number, held in rows.items():
            sizes = np.bincount(catalog.group_of[held], minlength=catalog.n_groups).astype(np.int64)
            pairs = zip(actors[number], states[number], strict=True)
            replicas = [Replica(actor, at, state) for at, (actor, state) in enumerate(pairs)]
            self._shards.append(Replicas(number, sizes, len(held) / len(catalog), replicas, deadline))
        self.applies_prices = next(one.applies_prices for those in states.values() for one in those if one)

    def _version_of(self, prices: npt.NDArray[np.float64] | None) -> int:
        """Return the version of this price vector. It increases whenever the prices differ from the last ones."""
        given = b"" if prices is None else prices.tobytes()
        with self._lock:
            if given != self._last_prices:
                self._version, self._last_prices = self._version + 1, given
            return self._version


def _rows_by_shard(placed: npt.NDArray[np.int64], shards: int) -> dict[int, npt.NDArray[np.int64]]:
    """Return the rows of each shard that is not empty."""
    order = np.argsort(placed, kind="stable")
    edges = np.searchsorted(placed[order], np.arange(shards + 1))
    return {at: order[edges[at] : edges[at + 1]] for at in range(shards) if edges[at] < edges[at + 1]}


def _check_nameable(name: str, catalog: Catalog, placement: npt.ArrayLike | None) -> None:
    check_name(name)
    if not isinstance(catalog, StoredCatalog) or placement is not None:
        raise InvalidInputError(
            "the shards of a named index outlive this process, and must find their items again without it: save the"
            " catalog with save_catalog, open it with open_catalog, and leave placement out."
        )
    if find_index(name) is not None:
        raise InvalidInputError(f"the index {name!r} runs already: RayIndex.attach to it, or RayIndex.end it first.")


def _state(ping: Any) -> ReplicaState | None:
    try:
        answer: ReplicaState = ray.get(ping, timeout=0)
    except ray.exceptions.RayError:
        return None
    return answer


def _check_deadline(deadline: float, hedge: float | None) -> None:
    if not deadline > 0:
        raise InvalidInputError(f"deadline must be a positive number of seconds, got {deadline}.")
    if hedge is not None and not 0 < hedge < deadline:
        raise InvalidInputError(f"hedge must be between 0 and the deadline of {deadline:g} s, got {hedge}.")
