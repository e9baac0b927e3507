"""Sharded and replicated search on a Ray cluster."""

from fairsync.search.ray.index import RayIndex

__all__ = ["RayIndex"]
