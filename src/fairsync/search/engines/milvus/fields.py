"""The fields of a collection of Milvus: how attributes are named and typed in it, and whether those that exist fit."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from fairsync.catalog.attributes import ListColumn
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import ItemSchema, empty_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.attributes import Column

# For each kind of values the type of a field that is made, then others that serve.
_TYPES = {
    "str": ("VARCHAR",),
    "int": ("INT64", "INT32", "INT16", "INT8"),
    "bool": ("BOOL",),
    "float": ("DOUBLE", "FLOAT"),
    "": ("VARCHAR",),
}
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

    def take(self, dim: int, ids: type[str] | type[int], columns: Mapping[str, Column]) -> None:
        """Take the form of the items."""
        if dim > MOST_DIM:
            raise InvalidInputError(f"Milvus takes vectors of at most {MOST_DIM:,} dimensions, and these have {dim:,}.")
        self.columns, self._ids = dict(columns), "VARCHAR" if ids is str else "INT64"
        self.given_dim, self.dim = dim, max(dim, _LEAST_DIM)

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
                    " embedding_column= or columns=."
                )
        kinds = {one: kind for kind in ("str", "int", "bool", "float") for one in _TYPES[kind]}
        columns = {}
        for name in attributes:
            field = held[self.field(name)]
            is_list = field["type"].name == "ARRAY"
            kind = kinds.get(field["element_type" if is_list else "type"].name)
            if kind is None:
                raise InvalidInputError(
                    f"the field {self.field(name)!r} of {place} is {field['type'].name}, and an attribute needs"
                    f" {', '.join(kinds)} or an ARRAY of them."
                )
            columns[name] = empty_column(kind, is_list=is_list)
        ids = int if held[self.id]["type"].name == "INT64" else str
        return ItemSchema(int(held[self.embedding].get("params", {}).get("dim", 0)), ids, columns)

    def check(self, described: Mapping[str, Any], place: str) -> None:
        """Raise if the items do not fit into a collection that exists."""
        held = {one["name"]: one for one in described["fields"]}
        names = ", ".join(held)
        key = held.get(self.id)
        if key is None or not key.get("is_primary"):
            primary = next((name for name, one in held.items() if one.get("is_primary")), None)
            raise InvalidInputError(
                f"{self.id!r} is not the primary key of {place}, which is {primary!r}: give id_column={primary!r}."
            )
        if key["type"].name != self._ids or key.get("auto_id") or described.get("auto_id"):
            kind = "made by Milvus" if described.get("auto_id") else key["type"].name
            raise InvalidInputError(f"the ids of {place} are {kind}, and those of the items need {self._ids}.")
        vector = held.get(self.embedding)
        if vector is None or vector["type"].name != "FLOAT_VECTOR":
            raise InvalidInputError(
                f"{place} has no field {self.embedding!r} of type FLOAT_VECTOR; it has {names}: give embedding_column=."
            )
        if int(vector["params"]["dim"]) != self.dim:
            raise InvalidInputError(
                f"the vectors of {place} have {vector['params']['dim']} dimensions, and the catalog has {self.dim}: use"
                " embeddings of the same model."
            )
        for name, column in self.columns.items():
            self._check_attribute(held.get(self.field(name)), name, column, names, place)

    def _check_attribute(
        self, held: Mapping[str, Any] | None, name: str, column: Column, names: str, place: str
    ) -> None:
        if held is None:
            raise InvalidInputError(
                f"{place} has no field {self.field(name)!r} for the attribute {name!r}; it has {names}: name it with"
                " columns=, or use another collection."
            )
        is_list, wanted = isinstance(column, ListColumn), _TYPES[column.kind]
        kind = held["element_type"].name if is_list and "element_type" in held else held["type"].name
        if (held["type"].name == "ARRAY") != is_list or kind not in wanted:
            needed = f"ARRAY of {wanted[0]}" if is_list else wanted[0]
            raise InvalidInputError(
                f"the field {self.field(name)!r} of {place} is {held['type'].name}, and the attribute {name!r} needs"
                f" {needed}."
            )
        if held.get("nullable"):
            raise InvalidInputError(
                f"the field {self.field(name)!r} of {place} may be null, and every item needs a {name!r}: use a"
                " collection whose field is not nullable."
            )


def _length(kind: str) -> dict[str, int]:
    return {"max_length": _MOST_LETTERS} if kind == "VARCHAR" else {}
