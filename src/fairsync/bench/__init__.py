"""Scaling benchmark: time and memory of search by number of items, groups, candidates, interests and shards."""

from fairsync.bench.measurement_points import MeasurementPoint, make_points
from fairsync.bench.run import Measurement, run

__all__ = ["Measurement", "MeasurementPoint", "make_points", "run"]
