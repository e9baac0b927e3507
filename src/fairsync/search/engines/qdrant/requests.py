"""What Qdrant is asked, in plain values: the client for servers and the engine in this process have their own types."""

from __future__ import annotations

import math
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import Floats

PointId: TypeAlias = int | str
# Ids of points are numbers or UUIDs. A word becomes a UUID in this namespace.
_NAMESPACE = uuid.UUID("6f7be0a4-3c1d-5f0e-9d63-51b0f2a5c8d7")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Clause:
    """A condition on a payload field: one of some values, or a number within a range.

    Attributes
    ----------
    key : str
        The path of the field.
    values : tuple
        Values, of which the field must have one. Empty for a range.
    low, high : float or None
        The range, bounds included.
    negated : bool
        Whether the field must not have them.
    """

    key: str
    values: tuple[AttributeLabel | float, ...] = ()
    low: float | None = None
    high: float | None = None
    negated: bool = False

    @property
    def ranges(self) -> list[tuple[float | None, float | None]]:
        """The ranges of which a number must be in one; empty for labels. Qdrant cannot match floats."""
        if self.values:
            return [(float(one), float(one)) for one in self.values if isinstance(one, float)]
        # Infinite bounds cannot be sent as JSON.
        return [(_finite(self.low), _finite(self.high))]


@dataclass(frozen=True)
class PointQuery:
    """A search for one vector.

    Attributes
    ----------
    vector : numpy.ndarray
        (d,) float32.
    limit, offset : int
        The number of points to return, and how many better ones to leave out.
    clauses : sequence of Clause
        Conditions that a point must meet.
    excluded : sequence
        Ids of points that must not be returned.
    boosts : sequence of pairs
        What is added to the score of points that meet a clause. If there are any, ``depth`` points are fetched by
        score, and ranked by score plus boosts.
    depth : int
        The number of points to fetch.
    """

    vector: Floats
    limit: int
    offset: int = 0
    clauses: Sequence[Clause] = ()
    excluded: Sequence[PointId] = ()
    boosts: Sequence[tuple[float, Clause]] = ()
    depth: int = 0


@dataclass(frozen=True)
class FoundPoint:
    """A point: its id, its score in a search, its payload, and its vector if that was asked for."""

    id: PointId
    payload: Mapping[str, Any]
    score: float = math.nan
    vector: Sequence[float] | None = None


class QdrantBackend(Protocol):
    """The part of Qdrant that an engine needs, over the network or in this process."""

    @property
    def place(self) -> str:
        """The address of the collection."""
        ...

    def exists(self) -> bool:
        """Return whether the collection is there."""
        ...

    def open(self, dim: int, keys: Mapping[str, str], *, create: bool, formulas: bool) -> None:
        """Check the collection, or make it, with an index of each payload field of these types."""
        ...

    def beside(self) -> QdrantBackend | None:
        """Return a new collection that can take the name of this one; None if the name cannot be switched."""
        ...

    def switch(self) -> None:
        """Give the name to this collection; see `fairsync.search.engines.engine.Engine.switch`."""
        ...

    def query(
        self, queries: Sequence[PointQuery], payload: Sequence[str], *, vectors: bool = False
    ) -> list[list[FoundPoint]]:
        """Return the points found by each query, best first, with these payload fields, and with vectors if asked."""
        ...

    def load(self) -> None:
        """Open the collection as it is, before anything is known of it; raise if it is not there."""
        ...

    def scroll(
        self, after: Any, limit: int, clauses: Sequence[Clause] = (), *, vectors: bool = True
    ) -> tuple[list[FoundPoint], Any]:
        """Return the next points that meet conditions, with payload and vector, and where to go on; None at the end."""
        ...

    def retrieve(self, ids: Sequence[PointId]) -> list[FoundPoint]:
        """Return those of the points that exist, with payload and vector."""
        ...

    def count(self) -> int:
        """Return the number of points."""
        ...

    def upsert(self, points: Sequence[FoundPoint]) -> None:
        """Add or replace points."""
        ...

    def delete(self, ids: Sequence[PointId]) -> None:
        """Remove points."""
        ...


class ClauseWriter:
    """Writes conditions as clauses.

    Parameters
    ----------
    paths
        The path of the payload field of each attribute.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> Clause:
        """Return a clause for points with one of these values."""
        if not values:
            return Clause(self._paths[attribute], low=1.0, high=0.0)  # met by none
        return Clause(self._paths[attribute], tuple(values))

    def within(self, attribute: str, low: float | None, high: float | None) -> Clause:
        """Return a clause for points with a number in this range."""
        return Clause(self._paths[attribute], low=low, high=high)

    def negate(self, clause: Clause) -> Clause:
        """Return a clause for all other points."""
        return replace(clause, negated=True)


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


def _finite(bound: float | None) -> float | None:
    if bound is None or math.isfinite(bound):
        return bound
    return math.copysign(1.7976931348623157e308, bound)
