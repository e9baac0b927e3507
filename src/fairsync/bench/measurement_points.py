"""Measurement points: one variable is scaled while the others are constant."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fairsync.bench.engine_indexes import ENGINE_NAMES
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

DIM = 64
# Larger graphs take too long to build, and larger one-hot vectors do not fit into memory.
_MOST_GRAPH_ITEMS = 100_000
_MOST_WIDE_BYTES = 1 << 31
GROWING: dict[str, tuple[int, ...]] = {
    "items": (10_000, 100_000, 1_000_000),
    "groups": (10, 100, 1_000, 10_000),
    "k": (10, 50, 200, 1_000),
    "interests": (1, 2, 4, 8),
    "shards": (1, 2, 4, 8, 16),
}
INDEX_NAMES = ("exact", "ivf", "one-hot", "hnsw", *ENGINE_NAMES)
# HNSW takes minutes per point, and engines write the items to a server, so they are measured on request only.
USUAL = INDEX_NAMES[:3]


@dataclass(frozen=True)
class MeasurementPoint:
    """An index over a generated catalog.

    Attributes
    ----------
    index : str
        Name of the index.
    items, groups : int
        Size of the catalog.
    k : int
        Candidates per request.
    interests : int
        Vectors per request.
    shards : int
        Number of shards of the catalog, each with an index of its own, searched in parallel.
    """

    index: str
    items: int = 100_000
    groups: int = 165
    k: int = 50
    interests: int = 1
    shards: int = 1

    @property
    def left_out(self) -> str | None:
        """The reason why the point is not measured, or None."""
        if self.index == "hnsw" and self.items > _MOST_GRAPH_ITEMS:
            return f"graphs are built up to {_MOST_GRAPH_ITEMS:,} items here"
        if self.index == "one-hot" and 4 * self.items * (DIM + self.groups) > _MOST_WIDE_BYTES:
            return "its wide vectors take more than 2 GB"
        if self.index in ENGINE_NAMES and self.shards > 1:
            return "an engine has shards of its own"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return asdict(self)


def make_points(
    indexes: Sequence[str] = USUAL,
    growing: Sequence[str] = tuple(GROWING),
    most_items: int = 1_000_000,
    base: MeasurementPoint | None = None,
) -> dict[str, list[MeasurementPoint]]:
    """Return the points to measure for each scaled variable.

    Parameters
    ----------
    indexes
        Names of the indexes.
    growing
        Variables to scale: some of ``items``, ``groups``, ``k``, ``interests`` and ``shards``.
    most_items
        Items of the largest catalog.
    base
        Values of the variables that are not scaled.

    Examples
    --------
    >>> [point.items for point in make_points(["exact"], ["items"], most_items=300_000)["items"]]
    [10000, 100000, 300000]
    """
    for what, given, known in (("index", indexes, INDEX_NAMES), ("growing", growing, GROWING)):
        unknown = [one for one in given if one not in known]
        if unknown:
            raise InvalidInputError(f"{what} must be some of {', '.join(known)}, got {unknown[0]!r}.")
    constant = base or MeasurementPoint("exact")
    values = dict(GROWING)
    values["items"] = (*(n for n in GROWING["items"] if n < most_items), most_items)
    points: dict[str, list[MeasurementPoint]] = {}
    for thing in growing:
        points[thing] = [
            replace(constant, index=index, **{thing: value})
            for value in values[thing]
            for index in indexes
            if not (thing == "groups" and value > constant.items // 10)
            and not (thing == "k" and value > constant.items)
        ]
    return points
