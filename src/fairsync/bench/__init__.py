"""How time and memory of search grow: with items, groups, candidates, interests and shards."""

from fairsync.bench.points import Point, make_points
from fairsync.bench.run import Figure, run

__all__ = ["Figure", "Point", "make_points", "run"]
