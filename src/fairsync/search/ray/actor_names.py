"""Actor names of a named index, by which other processes find its shards. The names hold all they must know."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import ray

from fairsync.errors import InvalidInputError

NAMESPACE = "fairsync"
"""The Ray namespace of the actors of named indexes."""


@dataclass(frozen=True)
class NamedIndex:
    """A named index: its name, the fingerprint of its catalog and its size, which are all part of its actors' names.

    Examples
    --------
    >>> named = NamedIndex("shop", "613f3f5fcd08cf8c", 4, 2)
    >>> named.actor_name(3, 1)
    'shop/613f3f5fcd08cf8c/4/2/3/1'
    >>> NamedIndex.parse("shop/613f3f5fcd08cf8c/4/2/3/1") == (named, 3, 1)
    True
    """

    name: str
    fingerprint: str
    shards: int
    replicas: int

    def actor_name(self, shard: int, replica: int) -> str:
        """Return the name of the actor of a replica."""
        return f"{self.name}/{self.fingerprint}/{self.shards}/{self.replicas}/{shard}/{replica}"

    @classmethod
    def parse(cls, actor_name: str) -> tuple[NamedIndex, int, int]:
        """Return the index, the shard and the replica of an actor's name."""
        name, fingerprint, *numbers = actor_name.split("/")
        shards, replicas, shard, replica = map(int, numbers)
        return cls(name, fingerprint, shards, replicas), shard, replica


def check_name(name: str) -> None:
    """Raise if the name of an index has characters that could not be parsed back."""
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise InvalidInputError(f"name must be letters, digits, '.', '_' and '-', got {name!r}.")


def named_actors(name: str) -> dict[str, Any]:
    """Return the actors of a named index by name, whether they are up or not."""
    actors = {}
    for one in ray.util.list_named_actors(all_namespaces=True):
        if one["namespace"] == NAMESPACE and one["name"].startswith(f"{name}/"):
            with contextlib.suppress(ValueError):  # the actor ended in the meantime
                actors[one["name"]] = ray.get_actor(one["name"], NAMESPACE)
    return actors


def find_index(name: str) -> tuple[NamedIndex, dict[tuple[int, int], Any]] | None:
    """Return a named index and its actors by shard and replica, None if there is no such index."""
    named, actors = None, {}
    for actor_name, actor in named_actors(name).items():
        named, shard, replica = NamedIndex.parse(actor_name)
        actors[shard, replica] = actor
    return None if named is None else (named, actors)


def check_connected() -> None:
    """Raise if this process is not connected to a Ray cluster."""
    if not ray.is_initialized():
        raise InvalidInputError("Ray is not connected: call ray.init(address='auto') on a node of the cluster first.")
