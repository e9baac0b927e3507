"""Items as points of Qdrant: their ids, and the payload fields of their attributes."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import StoredItems
from fairsync.search.engines.item_schema import ItemSchema, empty_column
from fairsync.search.engines.qdrant.requests import FoundPoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.attributes import Column
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.qdrant.requests import PointId

# Ids of points are numbers or UUIDs. A word becomes a UUID in this namespace.
_NAMESPACE = uuid.UUID("6f7be0a4-3c1d-5f0e-9d63-51b0f2a5c8d7")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class QdrantPayload:
    """How items are stored as points.

    Parameters
    ----------
    id_key
        The payload field of ids that are words; empty if these are the UUIDs of the points.
    columns
        The payload field of each attribute whose name is another one.

    Attributes
    ----------
    paths : dict
        The path of the payload field of each attribute, since `take`.
    """

    def __init__(self, id_key: str | None, columns: Mapping[str, str] | None) -> None:
        self._id_key, self._keys, self._has_words = id_key or None, dict(columns or {}), True
        self.paths: dict[str, str] = {}

    def take(self, schema: ItemSchema) -> dict[str, str]:
        """Take the form of the items; return the kind of each payload field, by its path."""
        schema.check_names(self._keys)
        self._has_words = schema.ids is str
        self.paths = {name: path_of(self.key(name)) for name in schema.columns}
        return {self.paths[name]: column.kind for name, column in schema.columns.items()}

    def key(self, attribute: str) -> str:
        """Return the payload field of an attribute."""
        return self._keys.get(attribute, attribute)

    def fields(self, with_items: bool) -> list[str]:
        """Return the payload fields that answers need: for ids, and for items if they are asked for."""
        ids = [path_of(self._id_key)] if self._has_words and self._id_key is not None else []
        return [*ids, *self.paths.values()] if with_items else ids

    def name(self, point: FoundPoint) -> Label:
        """Return the id of the item that a point is."""
        if not self._has_words:
            return point.id if isinstance(point.id, int) else -1
        return str(point.id if self._id_key is None else point.payload.get(self._id_key, point.id))

    def items(self, points: Sequence[FoundPoint]) -> StoredItems:
        """Return the items that points are."""
        vectors = np.array([one.vector for one in points], dtype=np.float32)
        attributes = {name: [one.payload.get(self.key(name)) for one in points] for name in self.paths}
        return StoredItems([self.name(one) for one in points], vectors, attributes)

    def points(self, items: StoredItems) -> list[FoundPoint]:
        """Return the points of items."""
        points = []
        for at, (name, vector) in enumerate(zip(items.ids, items.vectors.tolist(), strict=True)):
            payload = {self.key(key): values[at] for key, values in items.attributes.items()}
            if self._has_words and self._id_key is not None:
                payload[self._id_key] = name
            elif self._has_words and not is_uuid(str(name)):
                raise InvalidInputError(f"the id {name!r} is no UUID: give id_key=, the payload field for ids.")
            points.append(FoundPoint(point_id(name), payload, vector=vector))
        return points

    def schema_of(self, points: Sequence[FoundPoint], attributes: Sequence[str], place: str) -> ItemSchema:
        """Return the form of items, as some points have it; raise if a field is missing, or of several types."""
        if not points:
            raise InvalidInputError(f"{place} holds no points: write the items first.")
        if not isinstance(points[0].vector, list):
            raise InvalidInputError(f"{place} has vectors with names: name one with vector_name=.")
        has_words = not isinstance(points[0].id, int) or isinstance(points[0].payload.get(self._id_key or ""), str)
        columns = {name: self._column(points, name, place) for name in attributes}
        return ItemSchema(len(points[0].vector), str if has_words else int, columns)

    def check_fits(self, schema: ItemSchema, points: Sequence[FoundPoint], place: str) -> None:
        """Raise if attributes of items of this form are not in the payload of points, or of another type there."""
        columns = {name: self._column(points, name, place) for name in schema.columns}
        schema.check_fits(ItemSchema(schema.dim, schema.ids, columns), place)

    def _column(self, points: Sequence[FoundPoint], attribute: str, place: str) -> Column:
        key = self.key(attribute)
        values = [one.payload[key] for one in points if one.payload.get(key) is not None]
        if not values:
            known = ", ".join(sorted({key for one in points for key in one.payload}))
            raise InvalidInputError(
                f"{place} has no payload field {key!r} for the attribute {attribute!r}; it has {known}: name the"
                " field, or leave the attribute out."
            )
        flat = [label for one in values for label in (one if isinstance(one, list) else [one])]
        kinds = {type(one).__name__ for one in flat} or {"str"}
        kind = "float" if kinds == {"int", "float"} else kinds.pop()
        if kinds - {"int"} or kind not in ("str", "int", "bool", "float"):
            raise InvalidInputError(
                f"the payload field {key!r} of {place} has values of several types: give all points one type."
            )
        return empty_column(kind, is_list=isinstance(values[0], list))


def point_id(name: Label) -> PointId:
    """Return the id of the point of an item: the number, the UUID, or a UUID made from the word.

    Examples
    --------
    >>> point_id(7), point_id("{6F7BE0A4-3C1D-5F0E-9D63-51B0F2A5C8D7}") == point_id("tea"), len(point_id("tea"))
    (7, False, 36)
    """
    if isinstance(name, int):
        if not 0 <= name < 1 << 64:
            raise InvalidInputError(f"the id {name} cannot be that of a point of Qdrant: use words, or numbers from 0.")
        return name
    return name if is_uuid(name) else str(uuid.uuid5(_NAMESPACE, name))


def is_uuid(name: str) -> bool:
    """Return whether a word is a UUID in its usual form.

    Examples
    --------
    >>> is_uuid("6f7be0a4-3c1d-5f0e-9d63-51b0f2a5c8d7"), is_uuid("6F7BE0A43C1D5F0E9D6351B0F2A5C8D7"), is_uuid("tea")
    (True, False, False)
    """
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def path_of(key: str) -> str:
    """Return the path of a payload field, quoted if need be.

    Examples
    --------
    >>> path_of("brand"), path_of("the kind")
    ('brand', '"the kind"')
    """
    if '"' in key or "\\" in key:
        raise InvalidInputError(f"Qdrant cannot have a condition on the payload field {key!r}: name it without quotes.")
    return key if _PLAIN.fullmatch(key) else f'"{key}"'
