"""Qdrant as an engine: filters by payload, and prices as a formula over what was fetched by score."""

from __future__ import annotations

import copy
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import Abilities, Ranking, StoredItems, check_settings, edge, plain_values
from fairsync.search.engines.item_schema import ItemSchema, empty_column
from fairsync.search.engines.qdrant.edge import QdrantEdge
from fairsync.search.engines.qdrant.requests import (
    Clause,
    ClauseWriter,
    FoundPoint,
    PointQuery,
    is_uuid,
    path_of,
    point_id,
)
from fairsync.search.engines.qdrant.server import MEMORY, QdrantServer
from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from qdrant_client import QdrantClient

    from fairsync.catalog.conditions import Condition
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import Bonus, EngineQuery, Restricted
    from fairsync.search.engines.qdrant.requests import QdrantBackend

# A formula has a term for each distinct bonus, which is evaluated for each point that was fetched.
_MOST_LABELS = 512
_MOST_RESULTS = 100_000
_READ_AT_ONCE = 5000
# Points whose payload tells the types of its fields.
_SAMPLE = 1000


class QdrantEngine:
    """A collection of Qdrant; see `QdrantIndex` for the parameters."""

    def __init__(
        self,
        url: str | QdrantClient,
        collection: str = "items",
        *,
        api_key: str = "",
        id_key: str | None = "id",
        vector_name: str = "",
        columns: Mapping[str, str] | None = None,
        index: Literal["exact", "hnsw"] = "exact",
        prices: Literal["formula", "over-fetch"] = "formula",
        timeout: float = 10.0,
    ) -> None:
        check_settings(index, timeout=timeout, name=collection)
        if prices not in ("formula", "over-fetch"):
            raise InvalidInputError(f"prices must be 'formula' or 'over-fetch', got {prices!r}.")
        exact = index == "exact"
        self.backend: QdrantBackend
        if not isinstance(url, str) or url == MEMORY or url.startswith(("http://", "https://")):
            self.backend = QdrantServer(url, collection, api_key, vector_name, exact, timeout)
        elif "://" in url or not url:
            raise InvalidInputError(
                f"url must be http://…, https://…, {MEMORY!r} or the path of a folder, got {url!r}."
            )
        elif vector_name or api_key:
            raise InvalidInputError("a folder of Qdrant has neither vector_name= nor api_key=: leave them out.")
        else:
            self.backend = QdrantEdge(Path(url) / collection, exact)
        self._id_key, self._keys = id_key, dict(columns or {})
        self._paths: dict[str, str] = {}
        self._has_words = True
        self.abilities = Abilities(
            prices="formula" if prices == "formula" else "none",
            most_labels=_MOST_LABELS,
            exact=exact,
            most_results=_MOST_RESULTS,
        )

    @property
    def place(self) -> str:
        """The address of the collection."""
        return self.backend.place

    def exists(self) -> bool:
        """Return whether there is a collection of this name."""
        return self.backend.exists()

    def schema(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the types of the payload fields, as some points have them; see `Engine.schema`."""
        self.backend.load()
        points, _ = self.backend.scroll(None, _SAMPLE)
        if not points:
            raise InvalidInputError(f"{self.place} holds no points: write the items first.")
        if not isinstance(points[0].vector, list):
            raise InvalidInputError(f"{self.place} has vectors with names: name one with vector_name=.")
        has_words = not isinstance(points[0].id, int) or self._id_key in points[0].payload
        columns = {}
        for name in attributes:
            key = self._keys.get(name, name)
            values = [one.payload[key] for one in points if one.payload.get(key) is not None]
            if not values:
                known = ", ".join(sorted({key for one in points for key in one.payload}))
                raise InvalidInputError(
                    f"{self.place} has no payload field {key!r} for the attribute {name!r}; it has {known}: name the"
                    " field, or leave the attribute out."
                )
            flat = [label for one in values for label in (one if isinstance(one, list) else [one])]
            kinds = {type(one).__name__ for one in flat} or {"str"}
            kind = "float" if kinds == {"int", "float"} else kinds.pop()
            if kinds - {"int"} or kind not in ("str", "int", "bool", "float"):
                raise InvalidInputError(
                    f"the payload field {key!r} of {self.place} has values of several types: give all points one type."
                )
            columns[name] = empty_column(kind, is_list=isinstance(values[0], list))
        return ItemSchema(len(points[0].vector), str if has_words else int, columns)

    def prepare(self, schema: ItemSchema, *, create: bool, writes: bool) -> None:
        """Check the collection, or make it; see `Engine.prepare`."""
        self._has_words = schema.ids is str
        self._paths = {name: path_of(self._keys.get(name, name)) for name in schema.columns}
        kinds = {self._paths[name]: column.kind for name, column in schema.columns.items()}
        self.backend.open(schema.dim, kinds, create=create, formulas=self.abilities.prices == "formula")

    def finish(self, *, create: bool) -> None:
        """Build the HNSW index in this process, if it is to be used; a server does so by itself."""
        if create and not self.abilities.exact and isinstance(self.backend, QdrantEdge):
            self.backend.optimize()

    def search(self, query: EngineQuery) -> list[Ranking]:
        """Return what is found for each vector; see `Engine.search`."""
        queries = [one for at in range(len(query.vectors)) for one in self._queries(query, at)]
        fields, with_items = self._fields, query.with_items
        if with_items:
            fields = [*fields, *self._paths.values()]
        answers = self.backend.query(queries, fields, vectors=with_items)
        exact = self.abilities.exact
        if query.bonus is None:
            return [self._ranking(points, query.count, -math.inf, with_items) for points in answers]
        rankings = []
        for ranked, last in zip(answers[::2], answers[1::2], strict=True):
            # Behind what was fetched there may be the highest bonus; nothing, if not even the last place was filled.
            unfetched = edge([one.score for one in last], 1, exact) + query.bonus.highest
            rankings.append(self._ranking(ranked, query.count, unfetched, with_items))
        return rankings

    def items(self) -> Iterator[StoredItems]:
        """Yield all items, in batches; see `Engine.items`."""
        yield from map(self._stored, self._pages())

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist; see `Engine.fetch`."""
        return self._stored(self.backend.retrieve([point_id(name) for name in ids]))

    def count(self, attributes: Sequence[str] = (), conditions: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Count points by the values of some payload fields, which are all read; see `Engine.count`."""
        if not attributes and not conditions:
            return {(): self.backend.count()}
        clauses = write_conditions(conditions, ClauseWriter(self._paths))
        keys, found = [self._keys.get(name, name) for name in attributes], Counter[tuple[Any, ...]]()
        for points in self._pages(clauses, vectors=False):
            found.update(plain_values(one.payload.get(key) for key in keys) for one in points)
        return dict(found)

    def _pages(self, clauses: Sequence[Clause] = (), *, vectors: bool = True) -> Iterator[list[FoundPoint]]:
        points, after = self.backend.scroll(None, _READ_AT_ONCE, clauses, vectors=vectors)
        while points:
            yield points
            if after is None:
                return
            points, after = self.backend.scroll(after, _READ_AT_ONCE, clauses, vectors=vectors)

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Write items, then remove items; see `Engine.change`. Qdrant has no transactions."""
        points = []
        for at, (name, vector) in enumerate(zip(items.ids, items.vectors.tolist(), strict=True)):
            payload = {self._keys.get(key, key): values[at] for key, values in items.attributes.items()}
            if self._has_words and self._id_key is not None:
                payload[self._id_key] = name
            elif self._has_words and not is_uuid(str(name)):
                raise InvalidInputError(f"the id {name!r} is no UUID: give id_key=, the payload field for ids.")
            points.append(FoundPoint(point_id(name), payload, vector=vector))
        if points:
            self.backend.upsert(points)
        if removed:
            self.backend.delete([point_id(name) for name in removed])

    def beside(self) -> QdrantEngine | None:
        """Return an engine over a new collection; see `Engine.beside`. The name must be an alias, or a link."""
        backend = self.backend.beside()
        if backend is None:
            return None
        made = copy.copy(self)
        made.backend = backend
        return made

    def switch(self) -> None:
        """Move the alias to this collection; see `Engine.switch`."""
        self.backend.switch()

    @property
    def _fields(self) -> list[str]:
        """The payload fields that answers need."""
        return [path_of(self._id_key)] if self._has_words and self._id_key is not None else []

    def _name(self, point: FoundPoint) -> Label:
        if not self._has_words:
            return point.id if isinstance(point.id, int) else -1
        return str(point.id if self._id_key is None else point.payload.get(self._id_key, point.id))

    def _ranking(self, points: Sequence[FoundPoint], count: int, unfetched: float, with_items: bool) -> Ranking:
        scores = [one.score for one in points]
        # What a formula did not return was fetched, and is behind the last one.
        behind = edge(scores, count, self.abilities.exact or unfetched > -math.inf)
        items = self._stored(points) if with_items else None
        return Ranking([self._name(one) for one in points], scores, max(behind, unfetched), items)

    def _stored(self, points: Sequence[FoundPoint]) -> StoredItems:
        vectors = np.array([one.vector for one in points], dtype=np.float32)
        keys = {name: self._keys.get(name, name) for name in self._paths}
        attributes = {name: [one.payload.get(key) for one in points] for name, key in keys.items()}
        return StoredItems([self._name(one) for one in points], vectors, attributes)

    def _queries(self, query: EngineQuery, at: int) -> list[PointQuery]:
        """Return the query for one vector; with a bonus, also one for the last point that the formula sees."""
        vector = query.vectors[at]
        clauses, excluded = self._where(None if query.restricted is None else query.restricted[at])
        if query.bonus is None:
            return [PointQuery(vector, query.count, clauses=clauses, excluded=excluded)]
        masked, boosts = self._boosts(query.bonus)
        clauses += masked
        return [
            PointQuery(vector, query.count, 0, clauses, excluded, boosts, query.depth),
            PointQuery(vector, 1, query.depth - 1, clauses, excluded),
        ]

    def _where(self, restricted: Restricted | None) -> tuple[list[Clause], list[int | str]]:
        if restricted is None:
            return [], []
        clauses = write_conditions(restricted.conditions, ClauseWriter(self._paths))
        return clauses, [point_id(name) for name in restricted.excluded]

    def _boosts(self, bonus: Bonus) -> tuple[list[Clause], list[tuple[float, Clause]]]:
        """Return what is left out, and the boosts: one for all labels with the same bonus."""
        by_value: dict[float, list[Any]] = {}
        for label, value in bonus.by_label.items():
            by_value.setdefault(value, []).append(label)
        key = self._paths[bonus.attributes[0]]
        masked = [Clause(key, tuple(by_value.pop(-math.inf)), negated=True)] if -math.inf in by_value else []
        boosts = [(value, Clause(key, tuple(labels))) for value, labels in by_value.items()]
        return masked, boosts
