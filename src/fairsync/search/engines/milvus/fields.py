"""The fields of a collection of Milvus: how attributes are named and typed in it, and whether those that exist fit."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.attributes import ListColumn
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import StoredItems
from fairsync.search.engines.item_schema import ItemSchema, empty_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.attributes import Column
    from fairsync.search.engines.engine import Floats

# For each kind of values the type of a field that is made, then others that serve.
_TYPES = {
    "str": ("VARCHAR",),
    "int": ("INT64", "INT32", "INT16", "INT8"),
    "bool": ("BOOL",),
    "float": ("DOUBLE", "FLOAT"),
    "": ("VARCHAR",),
}
_KINDS = {one: kind for kind in ("str", "int", "bool", "float") for one in _TYPES[kind]}
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RESERVED = {"and", "or", "not", "in", "like", "exists", "true", "false", "is", "null"}
# The limits of Milvus: bytes of a string, items of an array, dimensions of a vector.
_MOST_LETTERS, _MOST_VALUES, _LEAST_DIM, MOST_DIM = 65535, 4096, 2, 32768


class MilvusFields:
    """The fields of a collection.

    Parameters
    ----------
    id_column, embedding_column
        The names of the fields of ids and of vectors.
    columns
        The field of each attribute whose name is another one.

    Attributes
    ----------
    columns : dict
        The attributes.
    given_dim, dim : int
        The number of dimensions of the vectors, and of those that are stored: at least 2, the others are 0.
    """

    def __init__(self, id_column: str, embedding_column: str, columns: Mapping[str, str] | None) -> None:
        self.id, self.embedding, self._named = id_column, embedding_column, dict(columns or {})
        for what, name in (("id_column", self.id), ("embedding_column", self.embedding), *self._named.items()):
            if not _PLAIN.fullmatch(name):
                raise InvalidInputError(
                    f"Milvus names fields by letters, digits and _ only, no digit first: {what!r} cannot be {name!r}."
                )
        self.columns: dict[str, Column] = {}
        self.given_dim, self.dim, self._ids = 0, 0, "VARCHAR"

    def take(self, schema: ItemSchema) -> None:
        """Take the form of the items."""
        schema.check_names(self._named)
        if schema.dim > MOST_DIM:
            raise InvalidInputError(
                f"Milvus takes vectors of at most {MOST_DIM:,} dimensions, and these have {schema.dim:,}."
            )
        self.columns, self._ids = dict(schema.columns), "VARCHAR" if schema.ids is str else "INT64"
        self.given_dim, self.dim = schema.dim, max(schema.dim, _LEAST_DIM)

    def field(self, attribute: str) -> str:
        """Return the field of an attribute: its name, or a hash of it if a field cannot be named so.

        Examples
        --------
        >>> fields = MilvusFields("id", "embedding", {"category": "kind"})
        >>> fields.field("category"), fields.field("brand"), fields.field("Größe in cm")
        ('kind', 'brand', 'a_5ebc3c74fd808b39')
        """
        if attribute in self._named:
            return self._named[attribute]
        if _PLAIN.fullmatch(attribute) and attribute.lower() not in _RESERVED | {self.id, self.embedding}:
            return attribute
        return f"a_{hashlib.blake2b(attribute.encode(), digest_size=8).hexdigest()}"

    @property
    def names(self) -> list[str]:
        """The fields that are read of an item."""
        return [self.id, self.embedding, *map(self.field, self.columns)]

    def rows(self, items: StoredItems) -> list[dict[str, Any]]:
        """Return items as Milvus takes them."""
        values = [items.ids, self.padded(items.vectors), *(items.attributes[name] for name in self.columns)]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*values, strict=True)]

    def items(self, rows: Sequence[Mapping[str, Any]]) -> StoredItems:
        """Return items as Milvus has returned them."""
        vectors = np.array([row[self.embedding] for row in rows], dtype=np.float32).reshape(-1, self.dim)
        values = {name: [plain(row[self.field(name)]) for row in rows] for name in self.columns}
        return StoredItems([row[self.id] for row in rows], vectors[:, : self.given_dim], values)

    def padded(self, vectors: Floats) -> Floats:
        """Return vectors with as many dimensions as are stored."""
        missing = self.dim - vectors.shape[1]
        return np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors

    def schema(self, client: Any, kinds: Any) -> Any:
        """Return the schema of a new collection."""
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(self.id, kinds[self._ids], is_primary=True, **_length(self._ids))
        schema.add_field(self.embedding, kinds.FLOAT_VECTOR, dim=self.dim)
        for name, column in self.columns.items():
            kind = _TYPES[column.kind][0]
            if isinstance(column, ListColumn):
                more = {"element_type": kinds[kind], "max_capacity": _MOST_VALUES}
                schema.add_field(self.field(name), kinds.ARRAY, **more, **_length(kind))
            else:
                schema.add_field(self.field(name), kinds[kind], **_length(kind))
        return schema

    def schema_of(self, described: Mapping[str, Any], attributes: Sequence[str], place: str) -> ItemSchema:
        """Return the form of the items of a collection that exists; raise if a field is missing, or of no use."""
        held = {one["name"]: one for one in described["fields"]}
        for name in (self.id, self.embedding, *map(self.field, attributes)):
            if name not in held:
                raise InvalidInputError(
                    f"{place} has no field {name!r}; it has {', '.join(held)}: name it with id_column=,"
                    " embedding_column= or columns=, or use another collection."
                )
        if not held[self.id].get("is_primary"):
            primary = next((name for name, one in held.items() if one.get("is_primary")), None)
            raise InvalidInputError(
                f"{self.id!r} is not the primary key of {place}, which is {primary!r}: give id_column={primary!r}."
            )
        if held[self.id].get("auto_id") or described.get("auto_id"):
            raise InvalidInputError(f"the ids of {place} are made by Milvus: use a collection with ids of its own.")
        if held[self.embedding]["type"].name != "FLOAT_VECTOR":
            raise InvalidInputError(
                f"the field {self.embedding!r} of {place} is {held[self.embedding]['type'].name}, and embeddings need"
                " FLOAT_VECTOR: give embedding_column=."
            )
        columns = {name: self._column(held[self.field(name)], name, place) for name in attributes}
        ids = int if held[self.id]["type"].name == "INT64" else str
        return ItemSchema(int(held[self.embedding]["params"]["dim"]), ids, columns)

    def _column(self, held: Mapping[str, Any], name: str, place: str) -> Column:
        """Return a column of the type that a field has."""
        is_list = held["type"].name == "ARRAY"
        kind = _KINDS.get(held["element_type" if is_list else "type"].name)
        if kind is None:
            raise InvalidInputError(
                f"the field {held['name']!r} of {place} is {held['type'].name}, and an attribute needs"
                f" {', '.join(_KINDS)} or an ARRAY of them."
            )
        if held.get("nullable"):
            raise InvalidInputError(
                f"the field {held['name']!r} of {place} may be null, and every item needs a {name!r}: use a"
                " collection whose field is not nullable."
            )
        return empty_column(kind, is_list=is_list)


def plain(value: Any) -> Any:
    """Return a value without the types of the protocol: lists come as containers of their own."""
    return value if isinstance(value, str | int | float) or value is None else list(value)


def _length(kind: str) -> dict[str, int]:
    return {"max_length": _MOST_LETTERS} if kind == "VARCHAR" else {}
