"""Several coordinators, one promise: they share counts and leases through a Redis or Valkey server."""

from fairsync.coordination.redis.coordinator import RedisCoordinator
from fairsync.coordination.redis.ledger import RedisLedger

__all__ = ["RedisCoordinator", "RedisLedger"]
