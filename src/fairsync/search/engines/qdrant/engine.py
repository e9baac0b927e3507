"""Qdrant as an engine: filters by payload, and prices as a formula over what was fetched by score."""

from __future__ import annotations

import copy
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import Abilities, Ranking, check_settings, edge, plain_values
from fairsync.search.engines.qdrant.edge import QdrantEdge
from fairsync.search.engines.qdrant.payload import QdrantPayload, point_id
from fairsync.search.engines.qdrant.requests import Clause, ClauseWriter, PointQuery
from fairsync.search.engines.qdrant.server import MEMORY, QdrantServer
from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from qdrant_client import QdrantClient

    from fairsync.catalog.conditions import Condition
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import Bonus, EngineQuery, Restricted, StoredItems
    from fairsync.search.engines.item_schema import ItemSchema
    from fairsync.search.engines.qdrant.requests import FoundPoint

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
        self.backend: QdrantServer | QdrantEdge
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
        self.payload = QdrantPayload(id_key, columns)
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
        return self.payload.schema_of(points, attributes, self.place)

    def prepare(self, schema: ItemSchema, *, create: bool, writes: bool) -> None:
        """Check the collection, or make it; see `Engine.prepare`."""
        formulas = self.abilities.prices == "formula"
        self.backend.open(schema.dim, self.payload.take(schema), create=create, formulas=formulas)
        if writes:
            self.backend.check_writes()
        elif points := self.backend.scroll(None, _SAMPLE, vectors=False)[0]:
            self.payload.check_fits(schema, points, self.place)

    def finish(self, *, create: bool) -> None:
        """Build the HNSW index in this process, if it is to be used; a server does so by itself."""
        if create and not self.abilities.exact and isinstance(self.backend, QdrantEdge):
            self.backend.optimize()

    def search(self, query: EngineQuery) -> list[Ranking]:
        """Return what is found for each vector; see `Engine.search`."""
        queries = [one for at in range(len(query.vectors)) for one in self._queries(query, at)]
        with_items, exact = query.with_items, self.abilities.exact
        answers = self.backend.query(queries, self.payload.fields(with_items), vectors=with_items)
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
        yield from map(self.payload.items, self._pages())

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist; see `Engine.fetch`."""
        return self.payload.items(self.backend.retrieve([point_id(name) for name in ids]))

    def count(self, attributes: Sequence[str] = (), conditions: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Count points by the values of some payload fields, which are all read; see `Engine.count`."""
        if not attributes and not conditions:
            return {(): self.backend.count()}
        clauses = write_conditions(conditions, ClauseWriter(self.payload.paths))
        pages, keys = self._pages(clauses, vectors=False), [*map(self.payload.key, attributes)]
        return Counter(plain_values(map(one.payload.get, keys)) for points in pages for one in points)

    def _pages(self, clauses: Sequence[Clause] = (), *, vectors: bool = True) -> Iterator[list[FoundPoint]]:
        points, after = self.backend.scroll(None, _READ_AT_ONCE, clauses, vectors=vectors)
        while points:
            yield points
            if after is None:
                return
            points, after = self.backend.scroll(after, _READ_AT_ONCE, clauses, vectors=vectors)

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Write items, then remove items; see `Engine.change`. Qdrant has no transactions."""
        if points := self.payload.points(items):
            self.backend.upsert(points)
        if removed:
            self.backend.delete([point_id(name) for name in removed])

    def beside(self) -> QdrantEngine | None:
        """Return an engine over a new collection; see `Engine.beside`. The name must be an alias, or a link."""
        backend = self.backend.beside()
        if backend is None:
            return None
        made = copy.copy(self)
        made.backend, made.payload = backend, copy.copy(self.payload)
        return made

    def switch(self) -> None:
        """Move the alias to this collection; see `Engine.switch`."""
        self.backend.switch()

    def _ranking(self, points: Sequence[FoundPoint], count: int, unfetched: float, with_items: bool) -> Ranking:
        scores = [one.score for one in points]
        # What a formula did not return was fetched, and is behind the last one.
        behind = edge(scores, count, self.abilities.exact or unfetched > -math.inf)
        items = self.payload.items(points) if with_items else None
        return Ranking([*map(self.payload.name, points)], scores, max(behind, unfetched), items)

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
        clauses = write_conditions(restricted.conditions, ClauseWriter(self.payload.paths))
        return clauses, [point_id(name) for name in restricted.excluded]

    def _boosts(self, bonus: Bonus) -> tuple[list[Clause], list[tuple[float, Clause]]]:
        """Return what is left out, and the boosts: one for all labels with the same bonus."""
        by_value: dict[float, list[Any]] = {}
        for label, value in bonus.by_label.items():
            by_value.setdefault(value, []).append(label)
        key = self.payload.paths[bonus.attributes[0]]
        masked = [Clause(key, tuple(by_value.pop(-math.inf)), negated=True)] if -math.inf in by_value else []
        boosts = [(value, Clause(key, tuple(labels))) for value, labels in by_value.items()]
        return masked, boosts
