"""What Qdrant is asked, in plain values: the client for servers and the engine in this process have their own types."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.search.engines.engine import Floats

PointId: TypeAlias = int | str


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


def _finite(bound: float | None) -> float | None:
    if bound is None or math.isfinite(bound):
        return bound
    return math.copysign(1.7976931348623157e308, bound)
