"""The names of shards that outlive the process that started them: other processes find in them all they must know."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import ray

from fairsync.errors import InvalidInputError

NAMESPACE = "fairsync"
"""Where the actors of named indexes are."""


@dataclass(frozen=True)
class NamedIndex:
    """What the actors of a named index are called, so that other processes find all they must know in the names.

    Examples
    --------
    >>> label = NamedIndex("shop", "613f3f5fcd08cf8c", 4, 2)
    >>> label.actor(3, 1)
    'shop/613f3f5fcd08cf8c/4/2/3/1'
    >>> NamedIndex.read("shop/613f3f5fcd08cf8c/4/2/3/1") == (label, 3, 1)
    True
    """

    name: str
    fingerprint: str
    shards: int
    replicas: int

    def actor(self, shard: int, replica: int) -> str:
        """Return the name of an actor."""
        return f"{self.name}/{self.fingerprint}/{self.shards}/{self.replicas}/{shard}/{replica}"

    @classmethod
    def read(cls, actor: str) -> tuple[NamedIndex, int, int]:
        """Return what a name says."""
        name, fingerprint, *numbers = actor.split("/")
        shards, replicas, shard, replica = map(int, numbers)
        return cls(name, fingerprint, shards, replicas), shard, replica


def check_name(name: str) -> None:
    """Refuse a name that could not be told from others."""
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise InvalidInputError(f"name must be letters, digits, '.', '_' and '-', got {name!r}.")


def named_actors(name: str) -> dict[str, Any]:
    """Return the actors of a named index by their names, whether they are up or not."""
    actors = {}
    for one in ray.util.list_named_actors(all_namespaces=True):
        if one["namespace"] == NAMESPACE and one["name"].startswith(f"{name}/"):
            with contextlib.suppress(ValueError):  # it ended just now
                actors[one["name"]] = ray.get_actor(one["name"], NAMESPACE)
    return actors


def find(name: str) -> tuple[NamedIndex, dict[tuple[int, int], Any]] | None:
    """Return the replicas of a named index by shard and number, None if there is no such index."""
    label, replicas = None, {}
    for actor_name, actor in named_actors(name).items():
        label, shard, number = NamedIndex.read(actor_name)
        replicas[shard, number] = actor
    return None if label is None else (label, replicas)


def check_connected() -> None:
    """Say what to do first, where Ray is not connected."""
    if not ray.is_initialized():
        raise InvalidInputError("Ray is not connected: call ray.init(address='auto') on a node of the cluster first.")
