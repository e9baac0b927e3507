"""A collection of Milvus as an engine: conditions and exclusions are expressions, prices are settled by the client."""

from __future__ import annotations

import copy
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import (
    Abilities,
    Ranking,
    Restricted,
    StoredItems,
    check_settings,
    edge,
    plain_values,
)
from fairsync.search.engines.milvus.connection import Connection
from fairsync.search.engines.milvus.expressions import ExpressionWriter, among, literal
from fairsync.search.engines.milvus.fields import MilvusFields
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
_NAMED_AT_ONCE = 2048
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
        self._check_index()
        self.server.call("load_collection", self._held_by)
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
        for at in range(len(query.vectors)):
            by_expression.setdefault("" if query.restricted is None else self._where(query.restricted[at]), []).append(
                at
            )
        vectors, count = self._padded(query.vectors), min(query.count, _MOST_RESULTS)
        step = max(1, min(_SENT_AT_ONCE // self.fields.dim, _RECEIVED_AT_ONCE // count))
        for expression, places in by_expression.items():
            for start in range(0, len(places), step):
                some = places[start : start + step]
                names = self._names if query.with_items else [self.fields.id]
                answer = self.server.retry(partial(self._search, vectors[some], count, expression, names))
                for at, hits in zip(some, answer, strict=True):
                    scores = list(hits.distances)
                    items = self._stored([one["entity"] for one in hits]) if query.with_items else None
                    found[at] = Ranking(list(hits.ids), scores, edge(scores, count, self.abilities.exact), items)
        return [found[at] for at in range(len(query.vectors))]

    def items(self) -> Iterator[StoredItems]:
        """Yield all items, in batches; see `Engine.items`."""
        for rows in self._pages(self._names, max(1, min(_READ_AT_ONCE // self.fields.dim, _MOST_RESULTS))):
            yield self._stored(rows)

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist; see `Engine.fetch`."""
        rows: list[dict[str, Any]] = []
        for start in range(0, len(ids), _NAMED_AT_ONCE):
            rows += self._query(among(self.fields.id, ids[start : start + _NAMED_AT_ONCE]), self._names)
        return self._stored(rows)

    def count(self, attributes: Sequence[str] = (), conditions: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Count items by the values of some fields, which are all read; see `Engine.count`."""
        expression = self._where(Restricted(tuple(conditions)))
        if not attributes:
            return {(): int(self._query(expression, ["count(*)"])[0]["count(*)"])}
        fields, found = [self.fields.field(name) for name in attributes], Counter[tuple[Any, ...]]()
        for rows in self._pages([self.fields.id, *fields], _MOST_RESULTS, expression):
            found.update(plain_values(_plain(row[field]) for field in fields) for row in rows)
        return dict(found)

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Write items, then remove items; see `Engine.change`. Milvus has no transactions."""
        step = max(1, _WRITTEN_AT_ONCE // self.fields.dim)
        columns = {self.fields.id: items.ids, self.fields.embedding: self._padded(items.vectors)}
        columns |= {self.fields.field(name): items.attributes[name] for name in self.fields.columns}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for start in range(0, len(rows), step):
            self.server.call("upsert", self._held_by, rows[start : start + step])
        for start in range(0, len(removed), _NAMED_AT_ONCE):
            gone = among(self.fields.id, removed[start : start + _NAMED_AT_ONCE])
            self.server.call("delete", self._held_by, filter=gone)
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

    @property
    def _names(self) -> list[str]:
        """The fields that are read of an item."""
        return [self.fields.id, self.fields.embedding, *map(self.fields.field, self.fields.columns)]

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

    def _check_index(self) -> None:
        names = self.server.call("list_indexes", self._held_by, field_name=self.fields.embedding)
        if not names:
            raise InvalidInputError(f"{self.place} has no index of {self.fields.embedding!r}: make one with metric IP.")
        held = self.server.call("describe_index", self._held_by, names[0])
        if held["metric_type"] != "IP":
            raise InvalidInputError(
                f"the metric of {self.place} is {held['metric_type']}, and relevance is the inner product: use a"
                " collection with IP. For cosines, store vectors of length 1 in it (normalize=True)."
            )
        if held["index_type"] not in _INDEXES[self.index][1]:
            other = " or index='hnsw'" if held["index_type"] in _INDEXES["hnsw"][1] else ""
            raise InvalidInputError(
                f"the index of {self.place} is {held['index_type']}, and index={self.index!r} needs"
                f" {_INDEXES[self.index][1][0]}: make it so{other}."
            )

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
            there = self._ask(expression, ["count(*)"], left)[0]["count(*)"]
            if any(len(hits.ids) < min(count, there) for hits in answer):
                raise self.server.milvus.MilvusException(message="only a part of the items is loaded")
        return answer

    def _pages(self, names: Sequence[str], size: int, expression: str = "") -> Iterator[list[dict[str, Any]]]:
        """Yield these fields of all items, by id. pymilvus has an iterator, which does not escape ids."""
        key, rest = self.fields.id, expression
        more: dict[str, Any] = {"iterator": "True"} if self.server.is_lite else {"reduce_stop_for_best": "True"}
        while rows := self._query(rest, names, limit=size, **more):
            yield rows
            after = f"{key} > {literal(max(row[key] for row in rows))}"
            rest = f"{after} and ({expression})" if expression else after

    def _query(self, expression: str, names: Sequence[str], **more: Any) -> list[dict[str, Any]]:
        return self.server.retry(lambda left: self._ask(expression, names, left, **more))

    def _ask(self, expression: str, names: Sequence[str], left: float, **more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.client.query(
            self._held_by,
            filter=expression,
            output_fields=list(names),
            consistency_level="Strong",
            timeout=left,
            **more,
        )
        return found

    def _stored(self, rows: Sequence[dict[str, Any]]) -> StoredItems:
        vectors = np.array([row[self.fields.embedding] for row in rows], dtype=np.float32).reshape(-1, self.fields.dim)
        values = {name: [_plain(row[self.fields.field(name)]) for row in rows] for name in self.fields.columns}
        return StoredItems([row[self.fields.id] for row in rows], vectors[:, : self.fields.given_dim], values)

    def _where(self, restricted: Restricted) -> str:
        writer = ExpressionWriter(self.fields.columns, self.fields.field)
        parts = [f"({part})" for part in write_conditions(restricted.conditions, writer)]
        if restricted.excluded:
            parts.append(f"not ({among(self.fields.id, restricted.excluded)})")
        return " and ".join(parts)

    def _refresh(self) -> None:
        """Take the server's time, which searches must have reached: they see all that was written before."""
        self._seen = self.server.server_time()

    def _padded(self, vectors: Floats) -> Floats:
        missing = self.fields.dim - vectors.shape[1]
        return np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors


def _plain(value: Any) -> Any:
    """Return a value without the types of the protocol: lists come as containers of their own."""
    return value if isinstance(value, str | int | float) or value is None else list(value)
