"""What a policy has learnt survives close and reopen exactly, and a crash as of the last save."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import Ledger, MemoryLedger, SqlLedger, Totals
from fairsync.loop.loop_state import LoopState
from fairsync.loop.saved_prices import SavedPrices
from fairsync.policies import POLICIES, Guaranteed, Terms
from fairsync.policies.serialization import dump_state
from fairsync.retriever import FairRetriever
from worlds import World, make_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fairsync.candidates import Candidates

# A horizon and a half, in calls that end within price batches and at their ends.
CALLS = [5, 27, 16, 1, 40, 11, 20, 30]


class Ledgers:
    """A ledger that is closed and opened again, in memory or in a file."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._path, self._memory = folder / "exposures.db", MemoryLedger(4)
        self._open: Ledger | None = None
        self._kind = kind

    def open(self) -> Ledger:
        """Close the ledger, if it is open, and open it again."""
        if self._open is not None:
            self._open.close()
        self._open = self._memory if self._kind == "memory" else SqlLedger(self._path, 4)
        return self._open


@pytest.fixture(params=["memory", "sqlite"])
def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> Ledgers:
    return Ledgers(request.param, tmp_path)


def small_world() -> World:
    return make_world(3, items=60, horizon=100, tightness=0.6)


class RetrieverRun:
    """A retriever, for tests that hold for a coordinator too."""

    def __init__(self, world: World, ledger: Ledger, **options: Any) -> None:
        settings = {"k": world.k, "floors": world.floors, "horizon": 100, **options}
        self.holder = FairRetriever(world.catalog, ledger=ledger, **settings)
        self.retrieve: Callable[[Any], Candidates] = self.holder.retrieve


class CoordinatorRun:
    """A coordinator with a front end."""

    def __init__(self, world: World, ledger: Ledger, **options: Any) -> None:
        settings = {"k": world.k, "floors": world.floors, "horizon": 100, **options}
        self.holder = Coordinator(world.catalog, ledger=ledger, **settings)
        self.retrieve: Callable[[Any], Candidates] = FrontEnd(world.catalog, self.holder).retrieve


RUNS = pytest.mark.parametrize("run", [RetrieverRun, CoordinatorRun])


@RUNS
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_run_that_is_closed_and_reopened_equals_one_that_is_not(run: Any, policy: str, ledgers: Ledgers) -> None:
    """After every call, also within a price batch and at the end of a horizon."""
    world = small_world()
    users = np.random.default_rng(0).permutation(np.concatenate([world.users] * 2))
    whole, start = run(world, MemoryLedger(4), policy=policy), 0
    for n in CALLS:
        part = run(world, ledgers.open(), policy=policy)
        assert part.holder.report() == whole.holder.report()
        one, other = (each.retrieve(users[start : start + n]) for each in (part, whole))
        assert one.ids.tolist() == other.ids.tolist()
        assert one.relevance.tolist() == other.relevance.tolist()
        part.holder.close()
        start += n
    assert part.holder.report() == whole.holder.report()
    if policy in ("guaranteed", "fairsync"):
        assert any(whole.holder.report().prices.values()), "there is something to lose"


@RUNS
def test_after_a_crash_prices_are_those_of_the_last_save(run: Any, tmp_path: Path) -> None:
    """The price batch under way is lost, and nothing else."""
    world, ledgers = small_world(), Ledgers("sqlite", tmp_path)
    first = run(world, ledgers.open(), save_seconds=0)
    first.retrieve(world.users[:40])
    before = first.holder.report()
    again = run(world, ledgers.open(), save_seconds=0)  # the first one was not closed
    assert any(before.prices.values())
    assert again.holder.report() == before
    again.retrieve(world.users[40:])
    assert again.holder.report().esp == 1


def test_calibrated_prices_are_saved(tmp_path: Path) -> None:
    world, ledgers = small_world(), Ledgers("sqlite", tmp_path)
    settings: dict[str, Any] = {"k": world.k, "floors": world.floors, "horizon": 100}
    before = FairRetriever(world.catalog, ledger=ledgers.open(), **settings).calibrate(world.users[:50]).report()
    again = FairRetriever(world.catalog, ledger=ledgers.open(), **settings)  # the first one was not closed
    assert any(before.prices.values())
    assert again.report() == before


@RUNS
def test_under_other_terms_prices_continue(run: Any, ledgers: Ledgers, caplog: pytest.LogCaptureFixture) -> None:
    world = small_world()
    first = run(world, ledgers.open())
    with first.holder as holder:
        first.retrieve(world.users[:40])
    prices = holder.report().prices
    assert any(prices.values())
    longer = run(world, ledgers.open(), horizon=120)
    assert longer.holder.report().prices == prices
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        other = run(world, ledgers.open(), k=world.k + 1)
    assert not any(other.holder.report().prices.values()), "what was learnt for shorter lists does not hold"
    assert "starting without the policy's saved state: it was learnt with k = 4, and now k is 5" in caplog.text


def test_a_state_that_an_earlier_version_saved_is_loaded() -> None:
    """Earlier versions saved the state alone."""
    world, ledger, policy = small_world(), MemoryLedger(4), Guaranteed()
    floors = np.array(list(world.floors.values()))
    state = policy.start(Terms(floors, np.full(4, world.k), world.k, 100, 16))
    state = type(state)(np.array([0.5, 0.0, 0.25, 1.0]), state.target)
    ledger.save("policy guaranteed", dump_state(policy, state))
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=100, ledger=ledger)
    assert list(retriever.report().prices.values()) == [-0.5, 0.0, -0.25, -1.0]


class CountingLedger(SqlLedger):
    """A ledger that counts saves."""

    saves = 0

    def save(self, name: str, value: bytes, audit: object = ()) -> None:
        self.saves += name.startswith("policy")
        super().save(name, value)


@RUNS
def test_saves_are_rare(run: Any, tmp_path: Path) -> None:
    """One when prices have first changed, one after each time span, one at the end; none if nothing has changed."""
    world = small_world()
    with CountingLedger(tmp_path / "exposures.db", 4) as ledger:
        made = run(world, ledger, save_seconds=3600)
        for user in world.users[:10]:
            made.retrieve(user[None])
        assert ledger.saves == 0, "prices have not changed yet"
        for user in world.users[10:60]:
            made.retrieve(user[None])
        assert ledger.saves == 1
        made.holder.close()
        made.holder.close()
        assert ledger.saves == 2
        run(world, ledger).holder.close()
        assert ledger.saves == 2
        made = run(world, ledger, save_seconds=0)
        for user in world.users[60:]:
            made.retrieve(user[None])
        assert ledger.saves == 5, "once for each change of prices, after requests 64, 80 and 96"


def test_a_retriever_saves_nothing_in_memory_before_it_is_closed() -> None:
    world, ledger = small_world(), MemoryLedger(4)
    with FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=100, ledger=ledger) as retriever:
        retriever.retrieve(world.users)
        assert ledger.load("policy guaranteed") is None
    assert ledger.load("policy guaranteed") is not None


class Unsavable(Guaranteed):
    """A policy whose state cannot be saved."""

    state_classes = ()  # type: ignore[assignment]


def test_a_state_that_cannot_be_saved_is_refused_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = small_world()
    with (
        SqlLedger(tmp_path / "exposures.db", 4) as ledger,
        pytest.raises(InvalidInputError, match="state_classes"),
    ):
        FairRetriever(world.catalog, k=4, policy=Unsavable(), ledger=ledger)
    retriever = FairRetriever(world.catalog, k=4, policy=Unsavable())
    retriever.retrieve(world.users)
    with caplog.at_level(logging.WARNING):
        retriever.close()
    assert "the policy's state was not saved" in caplog.text


def test_seconds_below_zero_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="save_seconds must be a number of seconds, 0 or more, got -1"):
        FairRetriever(small_world().catalog, k=4, save_seconds=-1)


def test_prices_that_an_earlier_version_saved_without_limits_can_be_read() -> None:
    """They hold None in place of what promises may cost."""
    policy, terms = Guaranteed(), Terms(np.array([5, 5]), np.array([2, 2]), k=2, horizon=10, batch_size=1)
    saved = SavedPrices.of(terms, LoopState.open(terms, policy, Totals.zero(2)))
    data = replace(saved, spending=None).dump(policy)  # type: ignore[arg-type]
    assert SavedPrices.load(policy, data).spending.affordable(terms) is terms
