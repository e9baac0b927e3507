import io
import json
import sys
from pathlib import Path

from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.staleness import K, World, simulate

from benchmarks import staleness
from fairsync.retriever import FairRetriever


def test_nothing_in_flight_is_a_retriever() -> None:
    """Calls of eight that are settled at once: the figures are those of the plain loop."""
    world = World(items=2_000, requests=200, seed=0)
    retriever = FairRetriever(world.catalog, K, world.floor, 200, batch_size=16, index=world.index)
    for start in range(0, 200, 8):
        retriever.retrieve(world.users[start : start + 8])
    report, figure = retriever.report(), simulate(world, batch=16, in_flight=0)
    assert figure.cost_ratio == (world.plain - report.relevance) / world.least
    assert (figure.esp, figure.held_up, figure.forced) == (report.esp, 0, report.forced / (200 * K))


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    shown = Console(file=io.StringIO(), width=160)
    sizes = ["--items", "2000", "--requests", "160", "--in-flight", "0", "64", "--batch-sizes", "16"]
    assert staleness.main([*sizes, "--out", str(tmp_path)], shown) == 0
    figures = json.loads((tmp_path / "staleness.json").read_text())["figures"]
    assert [one["in_flight"] for one in figures] == [0, 64]
    assert all(one["esp"] == 1 for one in figures)
