"""Qdrant's own engine in this process, over a folder: PyPI's qdrant-edge-py."""

from __future__ import annotations

import math
import shutil
import threading
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.extras import explain_missing
from fairsync.search.engines.item_schema import check_dim, check_metric
from fairsync.search.engines.qdrant.requests import FoundPoint, PointQuery
from fairsync.search.engines.retrying import refusal
from fairsync.search.engines.versions import new_version, versions_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fairsync.search.engines.qdrant.requests import Clause, PointId

_KINDS = {"str": "Keyword", "int": "Integer", "bool": "Integer", "float": "Float", "": "Keyword"}
_opened: dict[Path, tuple[Any, threading.Lock]] = {}
_opening = threading.Lock()


class QdrantEdge:
    """A folder of points that one process holds, with the methods of `QdrantServer`.

    The bindings take a bool for a number, so that bools are stored as 0 and 1.

    Parameters
    ----------
    folder
        The folder. All indexes of a process over the same folder share it.
    exact
        Whether to search without HNSW.
    """

    def __init__(self, folder: Path, exact: bool) -> None:
        with explain_missing("QdrantIndex over a folder"):
            import qdrant_edge
        self._edge: Any = qdrant_edge
        # The name is a link to the folder, which can be switched, unless the folder existed before.
        self._name, self._folder, self._bools = folder.absolute(), folder.resolve(), set[str]()
        self._exact, self._is_staged = exact, False
        ignore = self._edge.QuantizationSearchParams(ignore=True)
        self._params = self._edge.SearchParams(exact=True, quantization=ignore) if exact else None
        self._shard: Any = None
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """The folder."""
        return f"the folder {self._name} of Qdrant"

    def exists(self) -> bool:
        """Return whether the folder is there, with something in it."""
        self._pin()
        return self._folder.is_dir() and any(self._folder.iterdir())

    def open(self, dim: int, keys: Mapping[str, str], *, create: bool, formulas: bool) -> None:
        """Check the folder, or make it; see `QdrantServer.open`."""
        self._bools = {key for key, kind in keys.items() if kind == "bool"}
        with _opening:
            self._pin()
            if self._folder in _opened or self.exists() or not create:
                self._take()
            else:
                if not self._is_staged:
                    self._link()
                _opened[self._folder] = self._made(dim, keys), threading.Lock()
                self._take()
        self._check_vectors(dim)

    def load(self) -> None:
        """Open the folder; see `QdrantServer.load`."""
        with _opening:
            self._pin()
            self._take()

    def beside(self) -> QdrantEdge | None:
        """Return a new folder; see `QdrantServer.beside`."""
        if self._is_staged or not self._name.is_symlink():
            return None
        made = QdrantEdge(self._name, self._exact)
        made._folder, made._is_staged = self._new_folder(), True
        return made

    def switch(self) -> None:
        """Move the link to this folder, and delete what it pointed to before the last; see `Engine.switch`."""
        before, link = self._name.resolve(), self._name.with_name(f"{self._folder.name}.link")
        link.symlink_to(self._folder.name)
        link.replace(self._name)
        self._is_staged = False
        there = [one.name for one in self._name.parent.iterdir()]
        for other in versions_of(self._name.name, there, kept=[before.name, self._folder.name], separator="."):
            shutil.rmtree(self._name.with_name(other))

    def _pin(self) -> None:
        """Take the folder that the name stands for now, until it is opened."""
        if self._shard is None and not self._is_staged:
            self._folder = self._name.resolve()

    def _link(self) -> None:
        """Make the name a link to a new folder."""
        if self._name.is_dir():
            self._name.rmdir()  # it is empty
        self._name.parent.mkdir(parents=True, exist_ok=True)
        self._folder = self._new_folder()
        self._name.symlink_to(self._folder.name)

    def _new_folder(self) -> Path:
        return self._name.parent.resolve() / new_version(self._name.name, ".")

    def _take(self) -> None:
        """Use the folder that is there, which all indexes of the process share."""
        if self._folder not in _opened:
            if not self.exists():
                raise InvalidInputError(
                    f"there is no folder {self._name} of Qdrant: check its name, or make it with upload=True."
                )
            _opened[self._folder] = self._called(self._edge.EdgeShard.load, str(self._folder)), threading.Lock()
        self._shard, self._lock = _opened[self._folder]

    def _made(self, dim: int, keys: Mapping[str, str]) -> Any:
        """Return a new folder, with an index of each payload field."""
        edge = self._edge
        params = edge.EdgeVectorParams(size=dim, distance=edge.Distance.Dot)
        shard = self._called(edge.EdgeShard.create, str(self._folder), edge.EdgeConfig(vectors=params))
        for key, kind in keys.items():
            index = edge.UpdateOperation.create_field_index(key, getattr(edge.PayloadSchemaType, _KINDS[kind]))
            self._called(shard.update, index)
        return shard

    def query(
        self, queries: Sequence[PointQuery], payload: Sequence[str], *, vectors: bool = False
    ) -> list[list[FoundPoint]]:
        """Return the points found by each query; see `QdrantServer.query`."""
        requests = self._edge.QueryBatchRequest([self._request(one, list(payload), vectors) for one in queries])
        answers = self._called(self._shard.query_batch, requests)
        return [[self._found(one, one.score) for one in answer] for answer in answers]

    def scroll(
        self, after: Any, limit: int, clauses: Sequence[Clause] = (), *, vectors: bool = True
    ) -> tuple[list[FoundPoint], Any]:
        """Return the next points; see `QdrantServer.scroll`."""
        only = self._filter(clauses)
        request = self._edge.ScrollRequest(
            offset=after, limit=limit, filter=only, with_payload=True, with_vector=vectors
        )
        points, then = self._called(self._shard.scroll, request)
        return [self._found(one) for one in points], then

    def retrieve(self, ids: Sequence[PointId]) -> list[FoundPoint]:
        """Return those of the points that exist; see `QdrantServer.retrieve`."""
        found = self._called(self._shard.retrieve, list(ids), True, True)
        return [self._found(one) for one in found]

    def count(self) -> int:
        """Return the number of points."""
        return int(self._called(self._shard.count, self._edge.CountRequest(exact=True)))

    def upsert(self, points: Sequence[FoundPoint]) -> None:
        """Add or replace points."""
        made = [self._edge.Point(one.id, one.vector, self._to_numbers(one.payload)) for one in points]
        self._update(self._edge.UpdateOperation.upsert_points(made))

    def delete(self, ids: Sequence[PointId]) -> None:
        """Remove points."""
        self._update(self._edge.UpdateOperation.delete_points(list(ids)))

    def _update(self, operation: Any) -> None:
        with self._lock:
            self._called(self._shard.update, operation)
            self._called(self._shard.flush)

    def optimize(self) -> None:
        """Build the HNSW index, if there are points enough."""
        with self._lock:
            self._called(self._shard.optimize)

    def check_writes(self) -> None:
        """Do nothing: a folder that can be opened can be written to."""

    def _called(self, call: Any, *given: Any) -> Any:
        try:
            return call(*given)
        except Exception as error:
            if type(error) is not Exception:  # the engine raises nothing more specific
                raise
            raise refusal(f"Qdrant in {self._folder}", str(error)[:200], "Check url= and the items.") from error

    def _check_vectors(self, dim: int) -> None:
        """Check dimensions and distance on a point: a folder does not tell them."""
        points, _ = self.scroll(None, 1)
        if not points:
            return
        held = points[0].vector or []
        if not isinstance(held, list):
            raise InvalidInputError(f"{self.place} has vectors with names: use a folder whose vectors have none.")
        check_dim(dim, len(held), self.place)
        # Neither a cosine nor a distance is 4 for twice a vector of which the inner product with itself is 2.
        length = sum(one * one for one in held)
        query = self._edge.QueryRequest(
            limit=1, query=self._edge.Query.Nearest([2 * one for one in held]),
            filter=self._edge.Filter(must=[self._edge.HasIdCondition({points[0].id})]), params=self._params,
        )  # fmt: skip
        score = self._called(self._shard.query, query)[0].score
        if length and abs(score - 2 * length) > 1e-3 * length:
            check_metric("another one", "Dot", self.place)

    def _found(self, one: Any, score: float = math.nan) -> FoundPoint:
        payload = dict(one.payload or {})
        for key in self._bools & set(payload):
            held = payload[key]
            payload[key] = [bool(label) for label in held] if isinstance(held, list) else bool(held)
        return FoundPoint(_plain_id(one.id), payload, score, one.vector)

    def _to_numbers(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        numbers = dict(payload)
        for key in self._bools & set(numbers):
            held = numbers[key]
            numbers[key] = [int(label) for label in held] if isinstance(held, list) else int(held)
        return numbers

    def _request(self, query: PointQuery, payload: list[str], vectors: bool) -> Any:
        edge, fields = self._edge, payload or False
        only = self._filter(query.clauses, query.excluded)
        nearest = edge.Query.Nearest(query.vector.tolist())
        if not query.boosts:
            return edge.QueryRequest(
                limit=query.limit, offset=query.offset, query=nearest, filter=only, params=self._params,
                with_payload=fields, with_vector=vectors,
            )  # fmt: skip
        kinds = edge.Expression
        terms = [
            kinds.Mult([kinds.Constant(boost), kinds.Condition(self._condition(one))]) for boost, one in query.boosts
        ]
        formula = edge.Formula(kinds.Sum([kinds.Variable("$score"), *terms]))
        fetch = edge.Prefetch(limit=query.depth, query=nearest, filter=only, params=self._params)
        return edge.QueryRequest(
            limit=query.limit, query=formula, prefetches=[fetch], with_payload=fields, with_vector=vectors
        )

    def _filter(self, clauses: Sequence[Clause], excluded: Sequence[PointId] = ()) -> Any:
        must = [self._condition(one) for one in clauses if not one.negated]
        must_not = [self._condition(one) for one in clauses if one.negated]
        if excluded:
            must_not.append(self._edge.HasIdCondition(set(excluded)))
        return self._edge.Filter(must=must, must_not=must_not) if must or must_not else None

    def _condition(self, clause: Clause) -> Any:
        """Return what a clause says, negated or not, in the types of the engine."""
        edge, key = self._edge, clause.key
        parts = [edge.FieldCondition(key, range=edge.RangeFloat(gte=a, lte=b)) for a, b in clause.ranges]
        labels = [int(one) if isinstance(one, bool) else one for one in clause.values if not isinstance(one, float)]
        if labels:
            parts.append(edge.FieldCondition(key, match=edge.MatchAny(labels)))
        return parts[0] if len(parts) == 1 else edge.Filter(should=parts)


def _plain_id(given: Any) -> PointId:
    return given if isinstance(given, int) else str(given)
