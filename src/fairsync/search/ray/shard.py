"""The Ray actor that holds a replica of a shard: it loads its items, answers queries and pings."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import ray

from fairsync.catalog import Catalog
from fairsync.catalog.files import Fingerprint, StoredCatalog, Watch, read_part
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search import ExactIndex, make_index
from fairsync.search.base import check_prices
from fairsync.search.ray.messages import Query, pack_answer
from fairsync.search.sharded import Shard, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.search.base import Index

_log = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES = 5.0
# Items in one answer, of 16 bytes each: a small query must not take the memory of the node.
_MOST_HITS = 1 << 26


class ShardSource(Protocol):
    """Where a shard loads its items from. It is small enough to send, and serves again after a restart."""

    def load(self, watch: Watch) -> tuple[Catalog, NDArray[np.int64]]:
        """Return the items and their rows in the whole."""
        ...


@dataclass(frozen=True)
class FileSource:
    """Items of a catalog on disk, see `read_part`.

    Attributes
    ----------
    path, fingerprint : Path, Fingerprint
        The path of the catalog, and its expected content.
    number, shards : int
        The number of the shard, and of all shards: the shard holds the items whose ids have its hash.
    rows : tuple
        A reference to the rows of the shard, if they were chosen by a placement instead.
    """

    path: Path
    fingerprint: Fingerprint
    number: int
    shards: int
    rows: tuple[Any, ...] = ()

    def load(self, watch: Watch) -> tuple[Catalog, NDArray[np.int64]]:
        """Return the items and their rows in the whole."""

        def choose(names: Catalog) -> NDArray[np.int64]:
            # An array from Ray's store is a view of its memory; the copy releases it.
            return (
                np.array(ray.get(self.rows[0]))
                if self.rows
                else np.flatnonzero(place(names, self.shards) == self.number)
            )

        return read_part(self.path, self.fingerprint, choose, watch)


@dataclass(frozen=True)
class ObjectStoreSource:
    """Items in Ray's object store.

    Attributes
    ----------
    part : tuple
        The reference to the items, in a tuple: Ray would resolve a bare reference before the actor exists, and the
        actor could not report an error.
    """

    part: tuple[Any]

    def load(self, watch: Watch) -> tuple[Catalog, NDArray[np.int64]]:
        """Return the items and their rows in the whole."""
        embeddings, group_of, labels, ids, rows = ray.get(self.part[0])
        watch(len(rows), len(rows))
        # Copies, so that the store may move its objects to disk.
        return Catalog.from_codes(np.array(embeddings), group_of, labels, ids), np.array(rows)


def make_source(
    catalog: Catalog, rows: NDArray[np.int64], number: int, shards: int, chosen: bool
) -> FileSource | ObjectStoreSource:
    """Return the source of a shard: the files of the catalog if it has any, else Ray's object store.

    Parameters
    ----------
    catalog
        The whole catalog.
    rows
        The rows of the shard.
    number, shards
        The number of the shard, and of all shards.
    chosen
        Whether the rows were chosen by a placement instead of the hash of ids.
    """
    if isinstance(catalog, StoredCatalog):
        given = (ray.put(rows),) if chosen else ()
        return FileSource(catalog.path, catalog.fingerprint, number, shards, given)
    part = catalog.part(rows)
    return ObjectStoreSource((ray.put((part.embeddings, part.group_of, part.labels, part.ids, rows)),))


def answer(shard: Shard, message: bytes) -> bytes:
    """Return the answer of a shard to a packed `Query`. Raise for a query that it cannot answer, before searching."""
    query = Query.unpack(message)
    if query.users.shape[2] != shard.dim or not np.isfinite(query.users).all():
        raise InvalidInputError(f"user vectors must be {shard.dim} finite numbers.")
    most = len(query.users) * min(query.k, len(shard.rows))
    if most > _MOST_HITS:
        raise InvalidInputError(f"{most:,} items are asked for: ask a shard for {_MOST_HITS:,} at most in one query.")
    prices = check_prices(query.prices, shard.n_groups)
    return pack_answer(query.version, shard.search(query.users, prices, query.k))


class ReplicaState(NamedTuple):
    """The answer of a replica to a ping.

    Attributes
    ----------
    node : str
        The id of the node it runs on.
    pid : int
        The id of its process.
    items : int
        The number of items it holds.
    applies_prices : str
        How its index applies prices, see `Index`.
    """

    node: str
    pid: int
    items: int
    applies_prices: str


class ShardActor:
    """A replica of a shard, to be run as a Ray actor.

    An error while loading does not end the actor: it is logged, and loading is tried again at the next ping.

    Parameters
    ----------
    title
        The name of the replica in the log.
    source
        Where to load the items from.
    index
        The kind of index: a name, or a function of the part of the catalog.
    threads
        The most threads of an exact search.
    """

    def __init__(self, title: str, source: ShardSource, index: str | Callable[[Catalog], Index], threads: int) -> None:
        logging.basicConfig(level=logging.INFO)  # an actor is a process of its own: Ray collects its output
        self._title, self._source, self._index, self._threads = title, source, index, threads
        self._shard: Shard | None = None
        try:
            self._load()
        except Exception:
            _log.exception("%s cannot load its items", title)

    def ready(self) -> ReplicaState:
        """Answer a ping once the items are loaded."""
        shard = self._shard or self._load()
        node = ray.get_runtime_context().get_node_id()
        return ReplicaState(node, os.getpid(), len(shard.rows), shard.index.applies_prices)

    def search(self, message: bytes) -> bytes:
        """Answer a `Query`."""
        if self._shard is None:
            raise BackendUnavailableError(f"{self._title} has not loaded its items.")
        return answer(self._shard, message)

    def _load(self) -> Shard:
        started = logged = time.monotonic()

        def watch(done: int, items: int) -> None:
            nonlocal logged
            if done == items or time.monotonic() - logged > _SECONDS_BETWEEN_LINES:
                logged = time.monotonic()
                _log.info("%s: %s of %s items read", self._title, f"{done:,}", f"{items:,}")

        part, rows = self._source.load(watch)
        self._shard = Shard(part, rows, self._build)
        _log.info("%s is ready after %.1f s", self._title, time.monotonic() - started)
        return self._shard

    def _build(self, part: Catalog) -> Index:
        if callable(self._index):
            return self._index(part)
        if self._index == "exact":  # by default it would use every processor of the node
            return ExactIndex(part, self._threads)
        return make_index(self._index, part)
