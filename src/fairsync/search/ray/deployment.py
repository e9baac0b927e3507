"""Deployment of shards on a Ray cluster: place, start, wait until loaded, and end."""

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
    """The resources that each replica takes of its node.

    Attributes
    ----------
    cpus : float
        The number of processors.
    memory : int or None
        Bytes of memory; None if Ray should not account for memory.
    """

    cpus: float
    memory: int | None

    def bundle(self) -> dict[str, float]:
        """Return the resources as a bundle of a Ray placement group."""
        return {"CPU": self.cpus} | ({} if self.memory is None else {"memory": float(self.memory)})


@dataclass
class Deployment:
    """Running actors and their placement groups.

    Attributes
    ----------
    actors : dict
        The actors of each shard, by the number of the shard.
    groups : list
        The placement groups of the shards.
    """

    actors: dict[int, list[Any]]
    groups: list[PlacementGroup]

    def end(self) -> None:
        """End all actors and remove the placement groups."""
        for actor in (one for replicas in self.actors.values() for one in replicas):
            with contextlib.suppress(RayError, ValueError):
                ray.kill(actor)
        for group in self.groups:
            with contextlib.suppress(RayError, ValueError):
                remove_placement_group(group)


def deploy(
    sources: Mapping[int, ShardSource],
    replicas: int,
    index: str | Callable[[Catalog], Index],
    resources: Resources,
    named: NamedIndex | None,
    place_within: float,
) -> Deployment:
    """Start the replicas of every shard, those of one shard on different nodes.

    Parameters
    ----------
    sources
        The source of the items of each shard, by the number of the shard.
    replicas
        The number of replicas of each shard.
    index
        The index of each shard: a name, or a function of a part of the catalog.
    resources
        The resources of each replica.
    named
        The name of the index, for shards that other processes can find and that outlive this process.
    place_within
        Seconds until the cluster must have room for all replicas.
    """
    lacking = _lacking(len(sources), replicas, resources)
    if lacking:
        _log.warning("Waiting %g s for room on the cluster: %s.", place_within, lacking)
    deployment, end = Deployment({}, []), time.monotonic() + place_within
    life = {"lifetime": "detached"} if named else {}
    try:
        for number in sources:
            options = {"name": f"{NAMESPACE}/{named.name}/{number}"} if named else {}
            bundles = [resources.bundle() for _ in range(replicas)]
            deployment.groups.append(placement_group(bundles, "STRICT_SPREAD", **options, **life))
        for group in deployment.groups:
            if not group.wait(max(0.0, end - time.monotonic())):
                raise BackendUnavailableError(
                    f"The cluster has no room for {len(sources)} shards with {replicas} replica(s) each:"
                    f" {lacking or 'what is free lies scattered, or others took it'}. Add nodes, or ask for less."
                )
        host = ray.remote(ShardActor)
        for (number, source), group in zip(sources.items(), deployment.groups, strict=True):
            deployment.actors[number] = []
            for replica in range(replicas):
                options = {"name": named.actor_name(number, replica), "namespace": NAMESPACE} if named else {}
                actor = host.options(
                    num_cpus=resources.cpus,
                    memory=resources.memory,
                    max_restarts=-1,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, replica),
                    **options,
                    **life,
                ).remote(f"shard {number}, replica {replica}", source, index, max(1, math.floor(resources.cpus)))
                deployment.actors[number].append(actor)
    except BaseException:
        deployment.end()
        raise
    return deployment


def wait_until_loaded(actors: Mapping[int, list[Any]], seconds: float) -> dict[int, list[ReplicaState]]:
    """Wait until all replicas have loaded their items, and return their states by shard."""
    waiting = {one.ready.remote(): (number, at) for number, those in actors.items() for at, one in enumerate(those)}
    states: dict[tuple[int, int], ReplicaState] = {}
    end, n = time.monotonic() + seconds, len(waiting)
    while waiting:
        pause = min(_SECONDS_BETWEEN_LINES, max(0.0, end - time.monotonic()))
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=pause)
        for ref in ready:
            number, at = waiting.pop(ref)
            try:
                states[number, at] = ray.get(ref)
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
    return {number: [states[number, at] for at in range(len(those))] for number, those in actors.items()}


def end_named(name: str) -> bool:
    """End a named index from any process; return whether there was one."""
    actors = list(named_actors(name).values())
    groups = [
        PlacementGroup(ray.PlacementGroupID(bytes.fromhex(key)))
        for key, group in placement_group_table().items()
        if group["name"].startswith(f"{NAMESPACE}/{name}/") and group["state"] != "REMOVED"
    ]
    Deployment({0: actors}, groups).end()
    return bool(actors or groups)


def _lacking(shards: int, replicas: int, resources: Resources) -> str:
    """Return a message about the resources that the cluster lacks; empty if it seems to have enough."""
    bundle = resources.bundle()
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
