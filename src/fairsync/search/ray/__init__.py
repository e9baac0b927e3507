"""Search over shards that live on a Ray cluster, each replicated on several nodes."""

from fairsync.search.ray.index import RayIndex

__all__ = ["RayIndex"]
