"""A collection of Milvus as an engine: conditions and exclusions are expressions, prices are settled by the client."""

from __future__ import annotations

import copy
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import (
    Abilities,
    Ranking,
    Restricted,
    StoredItems,
    check_settings,
    edge,
    in_parts,
    plain_values,
)
from fairsync.search.engines.item_schema import check_metric
from fairsync.search.engines.milvus.connection import Connection
from fairsync.search.engines.milvus.expressions import ExpressionWriter, among, literal
from fairsync.search.engines.milvus.fields import MilvusFields, plain
from fairsync.search.engines.versions import new_version, versions_of
from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairsync.catalog.conditions import Condition
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import EngineQuery, Floats
    from fairsync.search.engines.item_schema import ItemSchema

# The most results for one vector, and what is sent, returned, written and read at once: messages have at most 64 MB.
_MOST_RESULTS = 16384
_SENT_AT_ONCE, _RECEIVED_AT_ONCE, _WRITTEN_AT_ONCE, _READ_AT_ONCE = 1 << 22, 1 << 17, 1 << 20, 1 << 19
_NAMED_AT_ONCE = 4096
_MOST_EF = 32768
_PAUSE = 0.05
# What an index is made with, and which of those that exist serve.
_INDEXES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "exact": ({"index_type": "FLAT"}, ("FLAT",)),
    "hnsw": ({"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}}, ("HNSW", "AUTOINDEX")),
}


class MilvusEngine:
    """A collection of Milvus; see `MilvusIndex` for the parameters."""

    def __init__(
        self,
        url: str,
        collection: str = "items",
        *,
        api_key: str = "",
        id_column: str = "id",
        embedding_column: str = "embedding",
        columns: Mapping[str, str] | None = None,
        index: Literal["exact", "hnsw"] = "exact",
        ef_search: int = 200,
        timeout: float = 10.0,
    ) -> None:
        check_settings(index, timeout=timeout, name=collection, ef_search=ef_search, most_ef_search=_MOST_EF)
        self.collection, self.index, self.fields = collection, index, MilvusFields(id_column, embedding_column, columns)
        # What the name stands for, from `prepare` on; and the name that a new collection is to take.
        self._held_by, self._name_after = collection, ""
        self.server, self._ef_search, self._seen = Connection(url, api_key, timeout), ef_search, 0
        exact = index == "exact"
        self.abilities = Abilities(prices="none", most_labels=0, exact=exact, most_results=_MOST_RESULTS)

    @property
    def place(self) -> str:
        """The address of the collection."""
        return f"the collection {self.collection!r} of Milvus at {self.server.uri}"

    def exists(self) -> bool:
        """Return whether there is a collection, or an alias, of this name."""
        return bool(self.server.call("has_collection", self.collection))

    def schema(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the types of the fields; see `Engine.schema`."""
        self.server.check_version()
        if not self.exists():
            raise InvalidInputError(f"there is no {self.place[4:]}: check its name, or make it with upload=True.")
        described = self.server.call("describe_collection", self.collection)
        self._held_by = described["collection_name"]
        return self.fields.schema_of(described, attributes, self.place)

    def prepare(self, schema: ItemSchema, *, create: bool, writes: bool) -> None:
        """Check the collection and load it, or make it; see `Engine.prepare`."""
        self.fields.take(schema)
        if create and not self.exists():
            self.server.check_version()
            self._create()
        held = self.schema(list(schema.columns))
        replace(schema, dim=self.fields.dim).check_fits(held, self.place)
        self.fields.columns = dict(held.columns)
        _check_index(self.server.index_of(self._held_by, self.fields.embedding), self.index, self.place)
        self.server.call("load_collection", self._held_by)
        if writes:  # raises if the user may not; there is no call that tells the rights of a user
            self.server.call("delete", self._held_by, filter=among(self.fields.id, []))
        self._refresh()

    def finish(self, *, create: bool) -> None:
        """Have what was written indexed, and wait for it; see `Engine.finish`."""
        if create and not self.abilities.exact:
            self.server.call("flush", self._held_by)
            while self.server.call("describe_index", self._held_by, self.fields.embedding)["state"] == "InProgress":
                time.sleep(_PAUSE)

    def search(self, query: EngineQuery) -> list[Ranking]:
        """Return what is found for each vector; see `Engine.search`. Vectors under the same conditions share a call."""
        found: dict[int, Ranking] = {}
        by_expression: dict[str, list[int]] = {}
        for at, one in enumerate(query.restricted or [Restricted()] * len(query.vectors)):
            by_expression.setdefault(self._where(one), []).append(at)
        vectors, count = self.fields.padded(query.vectors), min(query.count, _MOST_RESULTS)
        # pymilvus makes objects of all that it returns: many items are fetched part by part.
        at_once = query.with_items and count * self.fields.dim <= _RECEIVED_AT_ONCE
        names, width = (self.fields.names, self.fields.dim) if at_once else ([self.fields.id], 1)
        step = max(1, min(_SENT_AT_ONCE // self.fields.dim, _RECEIVED_AT_ONCE // (count * width)))
        for expression, places in by_expression.items():
            for some in in_parts(places, step):
                answer = self.server.retry(partial(self._search, vectors[some], count, expression, names))
                for at, hits in zip(some, answer, strict=True):
                    scores = list(hits.distances)
                    items = self.fields.items([one["entity"] for one in hits]) if at_once else None
                    if query.with_items and not at_once:
                        items = self.fetch(hits.ids)
                    found[at] = Ranking(list(hits.ids), scores, edge(scores, count, self.abilities.exact), items)
        return [found[at] for at in range(len(query.vectors))]

    def items(self) -> Iterator[StoredItems]:
        """Yield all items, in batches; see `Engine.items`."""
        size = max(1, min(_READ_AT_ONCE // self.fields.dim, _MOST_RESULTS))
        yield from map(self.fields.items, self._pages(self.fields.names, size))

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist; see `Engine.fetch`."""
        size = max(1, min(_READ_AT_ONCE // self.fields.dim, _NAMED_AT_ONCE))
        expressions = [among(self.fields.id, some) for some in in_parts(ids, size)]
        answers = (self.server.query(self._held_by, one, self.fields.names) for one in expressions)
        return StoredItems.joined([self.fields.items([]), *map(self.fields.items, answers)])

    def count(self, attributes: Sequence[str] = (), conditions: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Count items by the values of some fields, which are all read; see `Engine.count`."""
        expression = self._where(Restricted(tuple(conditions)))
        if not attributes:
            return {(): int(self.server.query(self._held_by, expression, ["count(*)"])[0]["count(*)"])}
        fields = [self.fields.field(name) for name in attributes]
        pages = self._pages([self.fields.id, *fields], _MOST_RESULTS, expression)
        return Counter(plain_values(plain(row[field]) for field in fields) for rows in pages for row in rows)

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Write items, then remove items; see `Engine.change`. Milvus has no transactions."""
        step = max(1, _WRITTEN_AT_ONCE // self.fields.dim)
        for rows in in_parts(self.fields.rows(items), step):
            self.server.call("upsert", self._held_by, rows)
        for some in in_parts(removed, _NAMED_AT_ONCE):
            self.server.call("delete", self._held_by, filter=among(self.fields.id, some))
        self._refresh()

    def beside(self) -> MilvusEngine | None:
        """Return an engine over a new collection; see `Engine.beside`. The name must be an alias."""
        if self._name_after or self._held_by == self.collection:
            return None
        made = copy.copy(self)
        made.fields, made.collection = copy.copy(self.fields), new_version(self.collection)
        made._held_by, made._name_after = made.collection, self.collection
        return made

    def switch(self) -> None:
        """Move the alias to this collection, and drop what had it before the last; see `Engine.switch`."""
        server, name = self.server, self._name_after
        before = server.collection_of(name)
        server.set_alias(name, self._held_by)
        self.collection, self._name_after = name, ""
        for other in versions_of(name, server.call("list_collections"), kept=[before, self._held_by]):
            server.call("drop_collection", other)

    def _create(self) -> None:
        """Make a collection with an alias, which can be switched; without one, if this engine is beside another."""
        server = self.server
        name = self.collection if self._name_after else new_version(self.collection)
        server.call("create_collection", name, schema=self.fields.schema(server.client, server.kinds))
        params = server.client.prepare_index_params()
        params.add_index(self.fields.embedding, metric_type="IP", **_INDEXES[self.index][0])
        server.call("create_index", name, params, sync=False)
        if name != self.collection:
            server.set_alias(self.collection, name)

    def _search(self, vectors: Floats, count: int, expression: str, names: list[str], left: float) -> Any:
        params = {} if self.abilities.exact else {"ef": min(max(self._ef_search, count), _MOST_EF)}
        answer = self.server.client.search(
            self._held_by,
            data=list(vectors),
            limit=count,
            filter=expression,
            output_fields=names,
            anns_field=self.fields.embedding,
            search_params={"metric_type": "IP", "params": params},
            # Fresh enough to see what this process wrote, also after a restart of the server.
            consistency_level="Customized",
            guarantee_timestamp=self._seen,
            timeout=left,
        )
        if self.abilities.exact and any(len(hits.ids) < count for hits in answer):
            there = self.server.ask(self._held_by, expression, ["count(*)"], left)[0]["count(*)"]
            if any(len(hits.ids) < min(count, there) for hits in answer):
                raise self.server.milvus.MilvusException(message="only a part of the items is loaded")
        return answer

    def _pages(self, names: Sequence[str], size: int, expression: str = "") -> Iterator[list[dict[str, Any]]]:
        """Yield these fields of all items, by id. pymilvus has an iterator, which does not escape ids."""
        key, rest = self.fields.id, expression
        more: dict[str, Any] = {"iterator": "True"} if self.server.is_lite else {"reduce_stop_for_best": "True"}
        while rows := self.server.query(self._held_by, rest, names, limit=size, **more):
            yield rows
            after = f"{key} > {literal(max(row[key] for row in rows))}"
            rest = f"{after} and ({expression})" if expression else after

    def _where(self, restricted: Restricted) -> str:
        writer = ExpressionWriter(self.fields.columns, self.fields.field)
        parts = [f"({part})" for part in write_conditions(restricted.conditions, writer)]
        if restricted.excluded:
            parts.append(f"not ({among(self.fields.id, restricted.excluded)})")
        return " and ".join(parts)

    def _refresh(self) -> None:
        """Take the server's time, which searches must have reached: they see all that was written before."""
        self._seen = self.server.server_time()


def _check_index(held: Mapping[str, Any] | None, index: str, place: str) -> None:
    """Raise if the index of a collection, as Milvus describes it, is of another kind or metric; None for no index."""
    if held is None:
        raise InvalidInputError(f"{place} has no index of its vectors: make one with metric IP.")
    check_metric(held["metric_type"], "IP", place)
    if held["index_type"] not in _INDEXES[index][1]:
        other = " or index='hnsw'" if held["index_type"] in _INDEXES["hnsw"][1] else ""
        raise InvalidInputError(
            f"the index of {place} is {held['index_type']}, and index={index!r} needs {_INDEXES[index][1][0]}: make it"
            f" so{other}."
        )
