"""One table of vectors in Milvus: written once, then only searched."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fairsync.errors import BackendUnavailableError, InvalidInputError

Floats = npt.NDArray[np.float32]
Watch = Callable[[int, int], object]
_Answer = TypeVar("_Answer")

# What Milvus allows: results for one vector, and columns of one.
MOST_RESULTS, MOST_COLUMNS = 16384, 32768
_LEAST_COLUMNS = 2
_KEY, _VECTOR = "row", "vector"
_INDEX_ENDS = ("Finished", "Failed")
# A message stays far below the 64 MB that servers accept; an answer is read into Python objects, one per item.
_WRITTEN_AT_ONCE, _SENT_AT_ONCE, _RECEIVED_AT_ONCE = 1 << 20, 1 << 22, 1 << 17
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# Waiting mends none of these; anything else may pass while a server starts or moves data about.
_NOT_FOUND = 100
_REFUSALS = {"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"}

_this_thread = threading.local()
for _logger in ("decorators", "client.connection_manager", "client.grpc_handler"):
    logging.getLogger(f"pymilvus.{_logger}").addFilter(lambda _: not getattr(_this_thread, "quiet", False))


class Table:
    """Rows 0, 1, 2, … of float32 vectors under one name on a Milvus server, ranked by inner product.

    Milvus scans all of them (FLAT), so that its ranking is exact up to float32 rounding. Answers that a restarting
    server gives too early, or in part, are not taken: the question is repeated until the time is up.

    Parameters
    ----------
    uri, token
        Where the server is and what opens it; a path that ends in ``.db`` is a file of Milvus Lite.
    name
        Of the collection in Milvus.
    size, width
        How many vectors there are and how many columns they have.
    timeout
        How many seconds a question may take, with all repetitions.
    """

    def __init__(self, uri: str, token: str, name: str, size: int, width: int, timeout: float) -> None:
        if width > MOST_COLUMNS:
            raise InvalidInputError(
                f"Milvus takes at most {MOST_COLUMNS:,} columns and this needs {width:,}: use prices='over-fetch'."
            )
        try:
            import grpc
            import pymilvus
        except ImportError as error:
            raise InvalidInputError("MilvusIndex needs pymilvus: pip install 'fairsync[milvus]'.") from error
        self.uri, self.name, self.size, self.timeout = uri, name, size, timeout
        self._width, self._token, self._milvus = max(width, _LEAST_COLUMNS), token, pymilvus
        self._troubles = (pymilvus.MilvusException, grpc.RpcError)
        self._client: Any = self._ask(self._connect)

    def search(self, vectors: Floats, count: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return (n, count) scores and rows of the best by inner product, best first.

        ``count`` is at most `MOST_RESULTS` and at most the size of the table.
        """
        vectors = self._padded(vectors)
        step = max(1, min(_SENT_AT_ONCE // self._width, _RECEIVED_AT_ONCE // count))
        parts = [vectors[start : start + step] for start in range(0, len(vectors), step)]
        answers = [self._ask(partial(self._search, part, count)) for part in parts]
        scores, rows = (np.concatenate(columns) for columns in zip(*answers, strict=True))
        return scores, rows

    def is_complete(self) -> bool:
        """Return whether everything was written; the table is ready to be searched then."""
        if not self._ask(lambda left: self._client.has_collection(self.name, timeout=left)):
            return False
        # The index is made last: without it, writing was interrupted.
        if not self._ask(lambda left: self._client.list_indexes(self.name, timeout=left)):
            return False
        self._ask(lambda left: self._client.load_collection(self.name, timeout=left))
        return self._count() == self.size

    def write(self, block: Callable[[slice], Floats], watch: Watch | None) -> None:
        """Write every row, again if need be: rows that are there are replaced by the same.

        Parameters
        ----------
        block
            The vectors of some rows.
        watch
            Told how many rows are written, of how many.
        """
        try:
            with _quiet():
                self._write(block, watch)
        except self._troubles as error:
            remedy = "Upload again when it is up: what is written in part is not used."
            raise self._unavailable(error, remedy) from error
        if (count := self._count()) != self.size:
            raise BackendUnavailableError(
                f"Milvus at {self.uri} holds {count:,} of {self.size:,} rows of {self.name!r} after the upload."
                " Does another program write to that collection? Upload again, or under another collection=."
            )

    def names(self, prefix: str) -> list[str]:
        """Return the names of the server's collections that start so."""
        names = self._ask(lambda left: self._client.list_collections(timeout=left))
        return sorted(name for name in names if name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Remove a collection of the server."""
        self._ask(lambda left: self._client.drop_collection(name, timeout=left))

    def _connect(self, left: float) -> Any:
        return self._milvus.MilvusClient(self.uri, token=self._token, timeout=left)

    def _write(self, block: Callable[[slice], Floats], watch: Watch | None) -> None:
        client, kinds = self._client, self._milvus.DataType
        if not client.has_collection(self.name):
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(_KEY, kinds.INT64, is_primary=True)
            schema.add_field(_VECTOR, kinds.FLOAT_VECTOR, dim=self._width)
            client.create_collection(self.name, schema=schema)
        step = max(1, _WRITTEN_AT_ONCE // self._width)
        for start in range(0, self.size, step):
            end = min(start + step, self.size)
            vectors = self._padded(block(slice(start, end)))
            rows = zip(range(start, end), vectors, strict=True)
            client.upsert(self.name, [{_KEY: row, _VECTOR: vector} for row, vector in rows])
            if watch:
                watch(end, self.size)
        # On disk first, then indexed, then loaded: nothing is searched in the provisional form of new rows.
        client.flush(self.name)
        index = client.prepare_index_params()
        index.add_index(_VECTOR, index_type="FLAT", metric_type="IP")
        # Asked here, because the client's own way to wait is not known to every server, Lite among them.
        client.create_index(self.name, index, sync=False)
        while client.describe_index(self.name, _VECTOR)["state"] not in _INDEX_ENDS:
            time.sleep(_FIRST_PAUSE)
        client.load_collection(self.name)

    def _search(self, vectors: Floats, count: int, left: float) -> tuple[Floats, npt.NDArray[np.int64]]:
        answer = self._client.search(
            self.name,
            data=list(vectors),
            limit=count,
            anns_field=_VECTOR,
            search_params={"metric_type": "IP"},
            # Nothing is written after the upload, so there is nothing newer to wait for.
            consistency_level="Bounded",
            timeout=left,
        )
        if len(answer) != len(vectors) or any(len(hits.ids) != count for hits in answer):
            raise self._milvus.MilvusException(message="only a part of the rows is loaded")
        scores = np.array([hits.distances for hits in answer], dtype=np.float32)
        return scores, np.array([hits.ids for hits in answer], dtype=np.int64)

    def _count(self) -> int:
        def count(left: float) -> int:
            found = self._client.query(
                self.name, filter="", output_fields=["count(*)"], consistency_level="Strong", timeout=left
            )
            return int(found[0]["count(*)"])

        return self._ask(count)

    def _padded(self, vectors: Floats) -> Floats:
        """Return the vectors as wide as the table; only a single column is too narrow for Milvus."""
        missing = self._width - vectors.shape[1]
        return np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors

    def _ask(self, question: Callable[[float], _Answer]) -> _Answer:
        """Ask what may be asked twice, given the seconds left, and again while the server may still come round."""
        end, pause = time.monotonic() + self.timeout, _FIRST_PAUSE
        while True:
            try:
                with _quiet():
                    return question(max(end - time.monotonic(), _FIRST_PAUSE))
            except self._troubles as error:
                if self._is_final(error):
                    raise self._refused(error) from error
                if time.monotonic() + pause >= end:
                    raise self._unavailable(
                        error, "Start it, check uri= and token=, or give it more time with timeout=."
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_final(self, error: Any) -> bool:
        known = self._milvus.exceptions
        code = error.code() if callable(error.code) else error.code
        refused = (
            code == _NOT_FOUND or getattr(code, "name", "") in _REFUSALS or getattr(error, "is_input_error", False)
        )
        return refused or isinstance(error, known.ParamError | known.ConnectionConfigException)

    def _unavailable(self, error: Exception, remedy: str) -> BackendUnavailableError:
        return BackendUnavailableError(f"Milvus at {self.uri} does not answer as it should: {_words(error)}. {remedy}")

    def _refused(self, error: Exception) -> InvalidInputError:
        return InvalidInputError(
            f"Milvus at {self.uri} refuses: {_words(error)}. Check uri= and token=;"
            f" if the collection {self.name!r} is gone, make the index again with upload=True."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the client from logging every error, with its traceback, before it raises it: we repeat, or say it once."""
    _this_thread.quiet = True
    try:
        yield
    finally:
        _this_thread.quiet = False


def _words(error: Any) -> str:
    text = error.details() if callable(getattr(error, "details", None)) else getattr(error, "message", "")
    return (text or type(error).__name__).strip().rstrip(".")
