"""Shards on a Ray cluster: placed, started, found again by other processes, and ended."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.ray.actor_names import NAMESPACE, named_actors
from fairsync.search.ray.replicas import first_line
from fairsync.search.ray.shard import ShardActor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairsync.catalog import Catalog
    from fairsync.search.base import Index
    from fairsync.search.ray.actor_names import NamedIndex
    from fairsync.search.ray.shard import ReplicaState, ShardSource

_log = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Resources:
    """What each replica takes of its node.

    Attributes
    ----------
    cpus : float
        Processors.
    memory : int or None
        Bytes; None leaves memory out of account.
    """

    cpus: float
    memory: int | None

    def bundle(self) -> dict[str, float]:
        """Return it in Ray's words."""
        return {"CPU": self.cpus} | ({} if self.memory is None else {"memory": float(self.memory)})


@dataclass
class Deployment:
    """What was started, to be ended.

    Attributes
    ----------
    actors : dict
        The replicas of each shard by its number.
    groups : list
        Placement groups.
    """

    actors: dict[int, list[Any]]
    groups: list[PlacementGroup]

    def end(self) -> None:
        """End all of it."""
        for actor in (one for replicas in self.actors.values() for one in replicas):
            with contextlib.suppress(RayError, ValueError):
                ray.kill(actor)
        for group in self.groups:
            with contextlib.suppress(RayError, ValueError):
                remove_placement_group(group)


def start(
    sources: Mapping[int, ShardSource],
    replicas: int,
    index: str | Callable[[Catalog], Index],
    needs: Resources,
    label: NamedIndex | None,
    place_within: float,
) -> Deployment:
    """Start the replicas of every shard, those of one shard on different nodes.

    Parameters
    ----------
    sources
        Where each shard, by its number, finds its items.
    replicas
        Of each shard.
    index
        A name, or a function of a part of the catalog.
    needs
        What each takes.
    label
        For shards that other processes can find, and that outlive this one.
    place_within
        Seconds until there must be room for all.
    """
    lacking = _lacking(len(sources), replicas, needs)
    if lacking:
        _log.warning("Waiting %g s for room on the cluster: %s.", place_within, lacking)
    started, end = Deployment({}, []), time.monotonic() + place_within
    life = {"lifetime": "detached"} if label else {}
    try:
        for number in sources:
            named = {"name": f"{NAMESPACE}/{label.name}/{number}"} if label else {}
            bundles = [needs.bundle() for _ in range(replicas)]
            started.groups.append(placement_group(bundles, "STRICT_SPREAD", **named, **life))
        for group in started.groups:
            if not group.wait(max(0.0, end - time.monotonic())):
                raise BackendUnavailableError(
                    f"The cluster has no room for {len(sources)} shards with {replicas} replica(s) each:"
                    f" {lacking or 'what is free lies scattered, or others took it'}. Add nodes, or ask for less."
                )
        host = ray.remote(ShardActor)
        for (number, source), group in zip(sources.items(), started.groups, strict=True):
            started.actors[number] = []
            for replica in range(replicas):
                named = {"name": label.actor(number, replica), "namespace": NAMESPACE} if label else {}
                actor = host.options(
                    num_cpus=needs.cpus,
                    memory=needs.memory,
                    max_restarts=-1,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, replica),
                    **named,
                    **life,
                ).remote(f"shard {number}, replica {replica}", source, index, max(1, math.floor(needs.cpus)))
                started.actors[number].append(actor)
    except BaseException:
        started.end()
        raise
    return started


def wait_until_loaded(actors: Mapping[int, list[Any]], seconds: float) -> dict[int, list[ReplicaState]]:
    """Return how each replica is once all have loaded their items."""
    waiting = {one.ready.remote(): (number, at) for number, those in actors.items() for at, one in enumerate(those)}
    standings: dict[tuple[int, int], ReplicaState] = {}
    end, n = time.monotonic() + seconds, len(waiting)
    while waiting:
        pause = min(_SECONDS_BETWEEN_LINES, max(0.0, end - time.monotonic()))
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=pause)
        for ref in ready:
            number, at = waiting.pop(ref)
            try:
                standings[number, at] = ray.get(ref)
            except RayTaskError as error:
                raise _untraced(error, f"Shard {number}, replica {at} cannot load its items") from error
            except RayActorError as error:
                raise BackendUnavailableError(
                    f"Shard {number}, replica {at} ended while it loaded its items ({first_line(error)}): see the logs"
                    " of its node. Is fairsync installed there, and is there memory enough?"
                ) from error
        _log.info("%d of %d replicas have loaded their items.", n - len(waiting), n)
        if waiting and time.monotonic() >= end:
            slow = ", ".join(f"shard {number} replica {at}" for number, at in list(waiting.values())[:5])
            raise BackendUnavailableError(f"Not loaded within {seconds:g} s: {slow}. Allow more, or see their logs.")
    return {number: [standings[number, at] for at in range(len(those))] for number, those in actors.items()}


def end_named(name: str) -> bool:
    """End a named index, whoever started it; return whether there was one."""
    actors = list(named_actors(name).values())
    groups = [
        PlacementGroup(ray.PlacementGroupID(bytes.fromhex(key)))
        for key, group in placement_group_table().items()
        if group["name"].startswith(f"{NAMESPACE}/{name}/") and group["state"] != "REMOVED"
    ]
    Deployment({0: actors}, groups).end()
    return bool(actors or groups)


def _lacking(shards: int, replicas: int, needs: Resources) -> str:
    """Say what the cluster lacks for so many; nothing if it seems to have it."""
    bundle = needs.bundle()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    able = [node for node in nodes if all(node.get(key, 0.0) >= wanted for key, wanted in bundle.items())]
    each = " and ".join(f"{wanted:g} {key}" for key, wanted in bundle.items())
    if len(able) < replicas:
        return (
            f"replicas of a shard stand on different nodes, and {len(able)} of {len(nodes)} have {each}, not {replicas}"
        )
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for key, wanted in bundle.items():
        need, left = shards * replicas * wanted, free.get(key, 0.0)
        if need > left:
            return f"{need:g} {key} are needed, and {left:g} of {total.get(key, 0.0):g} are free"
    return ""


def _untraced(error: RayTaskError, what: str) -> Exception:
    cause = error.cause
    kind = type(cause) if isinstance(cause, InvalidInputError | BackendUnavailableError) else BackendUnavailableError
    return kind(f"{what}: {cause}")
