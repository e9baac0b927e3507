"""A Milvus collection of vectors that is append-only."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.catalog.files import Watch
from fairsync.errors import BackendUnavailableError
from fairsync.search.milvus.connection import Connection

Floats = npt.NDArray[np.float32]
Keys = npt.NDArray[np.int64]
Block = Callable[[npt.NDArray[np.int64]], tuple[Floats, Mapping[str, Sequence[Any]]]]
"""Positions -> their vectors, and the values of further fields by name. They are made in batches, since all at once may
not fit into memory."""

# The limits of Milvus: results for one vector, and columns of a vector.
MOST_RESULTS, MOST_COLUMNS, MOST_LETTERS = 16384, 32768, 65535
_LEAST_COLUMNS = 2
KEY, _VECTOR = "key", "vector"
_INDEX_ENDS = ("Finished", "Failed")
# A message stays far below the 64 MB that servers accept. An answer is read into Python objects, one per item.
WRITTEN_AT_ONCE, _SENT_AT_ONCE, _RECEIVED_AT_ONCE = 1 << 20, 1 << 22, 1 << 17
_SOUGHT_AT_ONCE = 4096
_FIRST_PAUSE = 0.05


class MilvusCollection:
    """Float32 vectors under int64 keys in one collection of a Milvus server, ranked by inner product.

    A key always stands for the same vector, and no row is ever removed or replaced. Several indexes can share a
    collection: each knows its own keys and ignores those that others add. Milvus scans all rows (a FLAT index, and
    brute force for the newest rows), so that its ranking is exact up to float32 rounding.

    Parameters
    ----------
    connection
        The connection to the server.
    name
        The name of the collection.
    width
        The number of columns of a vector, at most `MOST_COLUMNS`. Narrower vectors are padded with zeros.
    fields
        The Milvus types of further fields, by name, which expressions can speak of. By default there are none.
    """

    def __init__(self, connection: Connection, name: str, width: int, fields: Mapping[str, str] | None = None) -> None:
        self.name, self.width, self.size = name, max(width, _LEAST_COLUMNS), 0
        self._fields = dict(fields or {})
        self._connection, self._client, self._seen = connection, connection.client, 0

    @classmethod
    def open(cls, connection: Connection, name: str) -> "MilvusCollection":
        """Open an existing collection and load it."""

        def width(left: float) -> int:
            fields = connection.client.describe_collection(name, timeout=left)["fields"]
            return int(next(field["params"]["dim"] for field in fields if field["name"] == _VECTOR))

        collection = cls(connection, name, connection.retry(width))
        connection.retry(lambda left: connection.client.load_collection(name, timeout=left))
        collection._refresh()
        return collection

    def search(
        self, vectors: Floats, count: int, expression: str = "", least: int | None = None
    ) -> tuple[Floats, Keys]:
        """Return (n, count) scores and keys of the best rows by inner product, best first.

        Parameters
        ----------
        vectors
            (n, width) vectors.
        count
            The number of rows, at most `MOST_RESULTS` and at most the size of the collection.
        expression
            What rows must meet, in the language of Milvus; empty for all. Where fewer rows do, the score is -inf and
            the key 0.
        least
            The least number of rows that the server must return: with fewer, it has not loaded them all. Defaults to
            ``count``.
        """
        vectors = self._padded(vectors)
        step = max(1, min(_SENT_AT_ONCE // self.width, _RECEIVED_AT_ONCE // count))
        parts = [vectors[start : start + step] for start in range(0, len(vectors), step)]
        least = count if least is None else least
        answers = [self._connection.retry(partial(self._search, part, count, expression, least)) for part in parts]
        scores, keys = (np.concatenate(columns) for columns in zip(*answers, strict=True))
        return scores, keys

    def create(self, keys: Keys, block: Block, watch: Watch | None) -> None:
        """Write a new collection and load it.

        Parameters
        ----------
        keys
            The keys of all rows.
        block
            A function that returns the vectors and fields of some rows.
        watch
            A progress callback: called with the number of rows written and the total.
        """
        with self._connection.without_retry("Upload again when it is up: what is written in part is not used."):
            self._create(keys, block, watch)
        self._refresh()
        if self.size < len(keys):
            raise BackendUnavailableError(
                f"Milvus at {self._connection.uri} holds {self.size:,} of {len(keys):,} rows of {self.name!r} after the"
                " upload. Does another program write to that collection? Upload again, or under another collection=."
            )

    def append(self, keys: Keys, block: Block) -> "MilvusCollection":
        """Add the rows that are missing, and return the collection with them: its searches always see them."""
        missing = np.flatnonzero(~np.isin(keys, self._present(keys)))
        for rows in self._batches(keys, block, missing):
            # Idempotent: a key always has the same vector.
            self._connection.retry(partial(self._upsert, rows))
        after = copy.copy(self)
        after._refresh()
        return after

    def _create(self, keys: Keys, block: Block, watch: Watch | None) -> None:
        client, kinds = self._client, self._connection.milvus.DataType
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(KEY, kinds.INT64, is_primary=True)
        schema.add_field(_VECTOR, kinds.FLOAT_VECTOR, dim=self.width)
        for name, kind in self._fields.items():
            more = {"max_length": MOST_LETTERS} if kind == "VARCHAR" else {}
            schema.add_field(name, getattr(kinds, kind), **more)
        client.create_collection(self.name, schema=schema)
        written = 0
        for rows in self._batches(keys, block, np.arange(len(keys))):
            client.upsert(self.name, rows)
            written += len(rows)
            if watch:
                watch(written, len(keys))
        # Flush, then index, then load: searches see the final form from the start.
        client.flush(self.name)
        index = client.prepare_index_params()
        index.add_index(_VECTOR, index_type="FLAT", metric_type="IP")
        # Polled here, because some servers, Lite among them, do not support the client's own way to wait.
        client.create_index(self.name, index, sync=False)
        while client.describe_index(self.name, _VECTOR)["state"] not in _INDEX_ENDS:
            time.sleep(_FIRST_PAUSE)
        client.load_collection(self.name)

    def _batches(self, keys: Keys, block: Block, places: npt.NDArray[np.int64]) -> Iterator[list[dict[str, Any]]]:
        step = max(1, WRITTEN_AT_ONCE // self.width)
        for start in range(0, len(places), step):
            at = places[start : start + step]
            vectors, fields = block(at)
            columns = {KEY: keys[at].tolist(), _VECTOR: self._padded(vectors), **fields}
            yield [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _upsert(self, rows: list[dict[str, Any]], left: float) -> None:
        self._client.upsert(self.name, rows, timeout=left)

    def _search(self, vectors: Floats, count: int, expression: str, least: int, left: float) -> tuple[Floats, Keys]:
        answer = self._client.search(
            self.name,
            data=list(vectors),
            limit=count,
            filter=expression,
            anns_field=_VECTOR,
            search_params={"metric_type": "IP"},
            # Fresh enough to see our last row, even if the server was restarted. Rows of others may come later.
            consistency_level="Customized",
            guarantee_timestamp=self._seen,
            timeout=left,
        )
        if len(answer) != len(vectors) or any(len(hits.ids) < least for hits in answer):
            raise self._connection.milvus.MilvusException(message="only a part of the rows is loaded")
        scores = np.full((len(vectors), count), -np.inf, dtype=np.float32)
        keys = np.zeros((len(vectors), count), dtype=np.int64)
        for i, hits in enumerate(answer):
            scores[i, : len(hits.ids)], keys[i, : len(hits.ids)] = hits.distances, hits.ids
        return scores, keys

    def _present(self, keys: Keys) -> Keys:
        """Return those of the keys that the collection holds."""
        found: list[int] = []
        for start in range(0, len(keys), _SOUGHT_AT_ONCE):
            sought = f"{KEY} in {keys[start : start + _SOUGHT_AT_ONCE].tolist()}"
            found += (row[KEY] for row in self._connection.retry(partial(self._query, sought, KEY)))
        return np.array(found, dtype=np.int64)

    def _refresh(self) -> None:
        """Update the number of rows, and the server's timestamp that searches must have reached."""
        self._seen = self._connection.server_time()
        self.size = int(self._connection.retry(partial(self._query, "", "count(*)"))[0]["count(*)"])

    def _query(self, condition: str, field: str, left: float) -> Any:
        return self._client.query(
            self.name, filter=condition, output_fields=[field], consistency_level="Strong", timeout=left
        )

    def _padded(self, vectors: Floats) -> Floats:
        """Return the vectors padded to the width of the collection: columns without a group yet are 0."""
        missing = self.width - vectors.shape[1]
        return np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors
