"""The process that holds a shard: it loads its items itself, answers questions and says how it is."""

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
from fairsync.errors import BackendUnavailableError
from fairsync.search import ExactIndex, make_index
from fairsync.search.ray.messages import Query, pack_answer
from fairsync.search.sharded import Shard, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.search.base import Index

_log = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES = 5.0


class ShardSource(Protocol):
    """Where a shard finds its items: small enough to travel, and good for loading again after a restart."""

    def load(self, watch: Watch) -> tuple[Catalog, NDArray[np.int64]]:
        """Return the items and their rows in the whole."""
        ...


@dataclass(frozen=True)
class FileSource:
    """Items of a catalog on disk, see `read_part`.

    Attributes
    ----------
    path, fingerprint : Path, Fingerprint
        Where, and what it must hold.
    number, shards : int
        Which shard of how many: it holds the items whose ids have its hash.
    rows : tuple
        A reference to the rows it holds instead, if they were chosen.
    """

    path: Path
    fingerprint: Fingerprint
    number: int
    shards: int
    rows: tuple[Any, ...] = ()

    def load(self, watch: Watch) -> tuple[Catalog, NDArray[np.int64]]:
        """Return the items and their rows in the whole."""

        def choose(names: Catalog) -> NDArray[np.int64]:
            # From Ray's store an array comes as a view of its memory; a copy lets go of that.
            return (
                np.array(ray.get(self.rows[0]))
                if self.rows
                else np.flatnonzero(place(names, self.shards) == self.number)
            )

        return read_part(self.path, self.fingerprint, choose, watch)


@dataclass(frozen=True)
class ObjectStoreSource:
    """Items that were put into Ray's object store.

    Attributes
    ----------
    part : tuple
        The reference, in a tuple: Ray would fetch a bare one before the shard exists, and no error could be told.
    """

    part: tuple[Any]

    def load(self, watch: Watch) -> tuple[Catalog, NDArray[np.int64]]:
        """Return the items and their rows in the whole."""
        embeddings, group_of, labels, ids, rows = ray.get(self.part[0])
        watch(len(rows), len(rows))
        # Copies, so that the store may move its own to disk.
        return Catalog.from_codes(np.array(embeddings), group_of, labels, ids), np.array(rows)


def make_source(
    catalog: Catalog, rows: NDArray[np.int64], number: int, shards: int, chosen: bool
) -> FileSource | ObjectStoreSource:
    """Return where a shard finds its rows of a catalog: in its files if it has any, else in Ray's store.

    Parameters
    ----------
    catalog
        The whole.
    rows
        What the shard holds.
    number, shards
        Which shard of how many.
    chosen
        Whether the rows are others than those that the hash of ids gives it.
    """
    if isinstance(catalog, StoredCatalog):
        given = (ray.put(rows),) if chosen else ()
        return FileSource(catalog.path, catalog.fingerprint, number, shards, given)
    part = catalog.part(rows)
    return ObjectStoreSource((ray.put((part.embeddings, part.group_of, part.labels, part.ids, rows)),))


class ReplicaState(NamedTuple):
    """How a replica is.

    Attributes
    ----------
    node : str
        Id of the node it runs on.
    pid : int
        Its process.
    items : int
        How many it holds.
    applies_prices : str
        See `Index`.
    """

    node: str
    pid: int
    items: int
    applies_prices: str


class ShardActor:
    """A replica of a shard, to be run as a Ray actor.

    What fails in loading does not end it: it tells, and tries again when it is asked next.

    Parameters
    ----------
    title
        For the log.
    source
        Where its items are.
    index
        A name, or a function of its part.
    threads
        How many an exact search may use.
    """

    def __init__(self, title: str, source: ShardSource, index: str | Callable[[Catalog], Index], threads: int) -> None:
        logging.basicConfig(level=logging.INFO)  # a process of its own: Ray keeps what it writes
        self._title, self._source, self._index, self._threads = title, source, index, threads
        self._shard: Shard | None = None
        try:
            self._load()
        except Exception:
            _log.exception("%s cannot load its items", title)

    def ready(self) -> ReplicaState:
        """Return how it is, once its items are loaded."""
        shard = self._shard or self._load()
        node = ray.get_runtime_context().get_node_id()
        return ReplicaState(node, os.getpid(), len(shard.rows), shard.index.applies_prices)

    def search(self, message: bytes) -> bytes:
        """Answer a `Query`."""
        if self._shard is None:
            raise BackendUnavailableError(f"{self._title} has not loaded its items.")
        query = Query.unpack(message)
        return pack_answer(query.version, self._shard.search(query.users, query.prices, query.k))

    def _load(self) -> Shard:
        started = told = time.monotonic()

        def watch(done: int, items: int) -> None:
            nonlocal told
            if done == items or time.monotonic() - told > _SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                _log.info("%s: %s of %s items read", self._title, f"{done:,}", f"{items:,}")

        part, rows = self._source.load(watch)
        self._shard = Shard(part, rows, self._build)
        _log.info("%s is ready after %.1f s", self._title, time.monotonic() - started)
        return self._shard

    def _build(self, part: Catalog) -> Index:
        if callable(self._index):
            return self._index(part)
        if self._index == "exact":  # it would take every processor of the node, not those that were asked for
            return ExactIndex(part, self._threads)
        return make_index(self._index, part)
