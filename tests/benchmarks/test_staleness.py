import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.staleness import K, LateCoordinator, Setting, World, simulate

from benchmarks import leases, staleness
from fairsync import FairRetriever, FrontEnd


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=2_000, requests=200, seed=0)


@pytest.mark.parametrize("calibrated", [False, True])
def test_one_front_end_is_a_retriever(world: World, calibrated: bool) -> None:
    """Calls of eight that are settled at once: the figures are those of the plain loop."""
    retriever = FairRetriever(world.catalog, k=K, floors=world.floor, horizon=200, batch_size=16, index=world.index)
    if calibrated:
        retriever.calibrate(world.past)
    for start in range(0, 200, 8):
        retriever.retrieve(world.users[start : start + 8])
    report, figure = retriever.report(), simulate(world, Setting(1, 8, 0, batch=16, calibrated=calibrated))
    assert figure.cost_ratio == (world.plain - report.relevance) / world.least
    assert (figure.esp, figure.held_up, figure.forced) == (report.esp, 0, report.forced / (200 * K))


def test_counts_come_when_the_front_end_has_its_next_turn(world: World) -> None:
    setting = Setting(front_ends=4, call=8, delay=10, batch=16, calibrated=False)
    assert setting.in_flight == 34
    coordinator = LateCoordinator(world, setting.batch, setting.in_flight)
    front_end = FrontEnd(world.catalog, coordinator, index=world.index)
    settled = []
    for start in range(0, 64, 8):
        front_end.retrieve(world.users[start : start + 8])
        settled.append(coordinator.ledger.totals().requests)
    assert settled == [0, 0, 0, 0, 8, 16, 24, 32]  # never more than 34 are out


def test_front_ends_and_delays_add_up(world: World) -> None:
    """To the coordinator, four front ends are one whose counts are behind by the calls of the other three."""
    four, late = (simulate(world, Setting(n, 8, delay, 16, calibrated=False)) for n, delay in ((4, 0), (1, 24)))
    assert replace(four, setting=late.setting) == late


def test_who_must_wait_is_served_all_the_same(world: World) -> None:
    """With everything in flight no count would ever come: calls are held up where floors would be at risk."""
    figure = simulate(world, Setting(front_ends=25, call=8, delay=0, batch=16, calibrated=False))
    assert figure.esp == 1
    assert figure.held_up > 0


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    shown = Console(file=io.StringIO(), width=160)
    sizes = ["--items", "2000", "--requests", "160", "--front-ends", "1", "8", "--delays", "0", "4"]
    assert staleness.main([*sizes, "--batch-sizes", "16", "--out", str(tmp_path)], shown) == 0
    figures = json.loads((tmp_path / "staleness.json").read_text())["figures"]
    assert [one["setting"]["front_ends"] for one in figures] == [1, 8, 1, 8] * 2
    assert all(one["esp"] == 1 for one in figures)
    assert (tmp_path / "staleness.png").stat().st_size > 10_000


def test_leases_are_timed_while_so_many_are_out(tmp_path: Path) -> None:
    shown = Console(file=io.StringIO(), width=160)
    sizes = ["--groups", "20", "--batch-sizes", "16", "--calls", "2", "--out-at-once", "4", "--leases", "12"]
    assert leases.main([*sizes, "--out", str(tmp_path)], shown) == 0
    [figure] = json.loads((tmp_path / "leases.json").read_text())["figures"]
    assert figure["lease_us"] > 0
    assert figure["settle_us"] > 0
