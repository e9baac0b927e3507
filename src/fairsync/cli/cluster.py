"""``fairsync cluster``: start, inspect, query and stop shards and a coordinator on a Ray cluster."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fairsync.cli.command import Command
from fairsync.cli.progress import progress_bar
from fairsync.cli.promise_options import read_floors
from fairsync.errors import InvalidInputError, MissingPackageError

if TYPE_CHECKING:
    from fairsync.search.ray import RayIndex

cluster = typer.Typer(
    help="Shards and a coordinator on a Ray cluster.", no_args_is_help=True, rich_markup_mode="markdown"
)

_Name = Annotated[str, typer.Option(help="Name of the deployment. A Ray cluster may run several.")]
_Address = Annotated[str, typer.Option(help="Address of the Ray cluster; `auto` on one of its nodes.")]
_Catalog = Annotated[
    Path,
    typer.Argument(help="A folder that `save_catalog` wrote, or a .parquet file. Every node needs it at this path."),
]
# Requests that a front end sends to the shards at once: about as many as one version of the prices is valid for.
_CALL = 256


@cluster.command(cls=Command)
def start(
    catalog: _Catalog,
    ledger: Annotated[Path, typer.Option(dir_okay=False, help="Ledger file on this node.")],
    horizon: Annotated[int, typer.Option(min=1, help="Requests over which the floors are spread.")],
    name: _Name = "fairsync",
    shards: Annotated[int, typer.Option(min=1, help="Shards of the catalog.")] = 4,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas per shard, on different nodes.")] = 1,
    index: Annotated[str, typer.Option(help="Index of each shard: exact, ivf, hnsw or one-hot.")] = "exact",
    k: Annotated[int, typer.Option("--k", min=1, help="Candidates per request.")] = 20,
    floor: Annotated[int, typer.Option(min=0, help="Exposures promised to every group.")] = 0,
    floors: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="A .json or .toml file of exposures by group.", show_default=False),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests between two price changes.")] = 16,
    cpus: Annotated[float, typer.Option(help="CPUs that each replica reserves on its node.")] = 1.0,
    place_within: Annotated[float, typer.Option(help="Seconds to wait for room on the cluster.")] = 30.0,
    address: _Address = "auto",
) -> None:
    """Load a catalog onto the cluster and start its coordinator. Both run until `fairsync cluster stop`.

    fairsync cluster start /data/items --shards 8 --replicas 2 --floor 1000 --horizon 1000000 --ledger exposures.db
    """
    from fairsync.catalog.files import open_catalog
    from fairsync.coordination.ray import RayCoordinator
    from fairsync.search.ray import RayIndex

    screen = _connected(address)
    opened = open_catalog(catalog)
    promised = floor if floors is None else read_floors(floors, opened)
    settings: dict[str, Any] = {"k": k, "floors": promised, "horizon": horizon, "batch_size": batch_size}
    RayCoordinator.start(opened, str(ledger.absolute()), name, **settings)
    try:
        with screen.status(f"{shards} shards load {len(opened):,} items ..."):
            RayIndex(opened, shards, replicas, index, cpus=cpus, name=name, place_within=place_within)
    except BaseException:
        RayCoordinator.end(name)
        raise
    screen.print(f"{name!r} runs: {opened}, {shards} shards × {replicas}, k = {k}.")
    at = "" if address == "auto" else f" --address {address}"
    screen.print(f"Look at it: fairsync cluster status {catalog} --name {name}{at}")


@cluster.command(cls=Command)
def status(catalog: _Catalog, name: _Name = "fairsync", address: _Address = "auto") -> None:
    """Show the state of every replica, and the report of the coordinator."""
    from fairsync.coordination.ray import RayCoordinator

    screen = _connected(address)
    running = _attached(name, catalog)
    table = Table("shard", "replica", "items", "node", "process", "state", title=f"Shards of {name!r}")
    for one in running.health():
        state = "[green]up[/]" if one.up else f"[red]down[/] {one.error}"
        table.add_row(f"{one.shard}", f"{one.replica}", f"{one.items:,}", one.node[:8], f"{one.pid}", state)
    screen.print(table)
    screen.print(RayCoordinator(name).report())


@cluster.command(cls=Command)
def retrieve(
    catalog: _Catalog,
    users: Annotated[Path, typer.Argument(dir_okay=False, help="A .npy file of (n, d) or (n, interests, d) vectors.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="A .npz file: ids, groups, relevance, searched.")],
    name: _Name = "fairsync",
    deadline: Annotated[float, typer.Option(help="Seconds to wait for a shard; then it is left out.")] = 5.0,
    address: _Address = "auto",
) -> None:
    """Answer requests from a file, as a front end. Any number of front ends may run at the same time."""
    from fairsync.candidates import Candidates
    from fairsync.coordination.front_end import FrontEnd
    from fairsync.coordination.ray import RayCoordinator

    screen = _connected(address)
    try:
        vectors = np.load(users, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInputError(f"{users} is no .npy file of vectors: {error}") from error
    index: RayIndex = _attached(name, catalog, deadline)
    front = FrontEnd(index.catalog, RayCoordinator(name), index=index)
    parts: list[Candidates] = []
    with progress_bar(counts=True) as bar:
        task = bar.add_task("requests", total=len(vectors))
        for start_at in range(0, len(vectors), _CALL):
            parts.append(front.retrieve(np.asarray(vectors[start_at : start_at + _CALL])))
            bar.advance(task, len(parts[-1].ids))
    if not parts:
        raise InvalidInputError(f"{users} holds no request.")
    found = Candidates.join(parts)
    np.savez_compressed(out, ids=found.ids, groups=found.groups, relevance=found.relevance, searched=found.searched)
    degraded = int((found.searched < 1).sum())
    screen.print(f"{len(vectors):,} requests answered, {degraded:,} of them without some of the shards. Written: {out}")


@cluster.command(cls=Command)
def stop(name: _Name = "fairsync", address: _Address = "auto") -> None:
    """Stop the shards and the coordinator. The ledger is kept, and `start` continues from it."""
    from fairsync.coordination.ray import RayCoordinator
    from fairsync.search.ray import RayIndex

    screen = _connected(address)
    ended = [RayIndex.end(name), RayCoordinator.end(name)]
    if not any(ended):
        raise InvalidInputError(f"nothing runs under the name {name!r}.")
    screen.print(f"{name!r} is stopped. Its ledger is kept.")


def _connected(address: str) -> Console:
    try:
        import ray
    except ImportError:
        raise MissingPackageError("Ray is not installed: pip install 'fairsync[ray]'.") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"there is no Ray cluster at {address!r} ({error}): run `ray start --head` first, or give --address."
            ) from error
    return Console(highlight=False)


def _attached(name: str, catalog: Path, deadline: float = 5.0) -> RayIndex:
    from fairsync.catalog.files import open_catalog
    from fairsync.search.ray import RayIndex

    return RayIndex.attach(name, open_catalog(catalog), deadline)
