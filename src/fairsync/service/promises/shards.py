"""The shards of an index: where each is, and whether it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairsync.search import ShardedIndex
from fairsync.service.schema import ShardView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.search import Index

# Shards that a message lists by name.
_MOST_NAMED = 5


def shard_views(index: Index) -> list[ShardView]:
    """Return the shards of an index; none if it has no shards."""
    index = getattr(index, "built", index)  # changed items lie over the index that was built
    health: Callable[[], list[object]] | None = getattr(index, "health", None)
    if health is None:  # shards in this process are up as long as it is
        sizes = [len(shard.rows) for shard in index.shards] if isinstance(index, ShardedIndex) else []
        return [ShardView(shard=shard, replica=0, items=size, up=True) for shard, size in enumerate(sizes)]
    return [msgspec.convert(one, ShardView, from_attributes=True) for one in health()]


def describe_lost(shards: Sequence[ShardView]) -> str:
    """Say which shards or replicas do not answer, and what that means.

    Examples
    --------
    >>> shards = [ShardView(shard=shard, replica=0, items=50, up=shard > 0) for shard in range(2)]
    >>> describe_lost(shards)
    '1 of 2 shards does not answer (0): 50.0% of the items are out of reach.'
    """
    down, up = [one for one in shards if not one.up], {one.shard for one in shards if one.up}
    items = {one.shard: one.items for one in shards}
    lost = [shard for shard in items if shard not in up]
    if not lost:
        named = _named([f"{one.shard}.{one.replica}" for one in down])
        verb = "does" if len(down) == 1 else "do"
        return f"{len(down)} of {len(shards)} replicas {verb} not answer ({named}). Others have all their items."
    part = sum(items[shard] for shard in lost) / max(sum(items.values()), 1)
    verb, named = "does" if len(lost) == 1 else "do", _named([str(shard) for shard in lost])
    return f"{len(lost)} of {len(items)} shards {verb} not answer ({named}): {part:.1%} of the items are out of reach."


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
