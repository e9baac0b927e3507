"""Requests that cannot show everything: floors hold as far as the forecast of what can be shown does."""

from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.lease import Settlement
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.eligibility.eligible_slots import (
    CountedSlots,
    EligibleSlots,
    SlotForecast,
    highest_mean,
    highest_outcome,
    lowest_mean,
    lowest_outcome,
)
from fairsync.eligibility.own_sizes import OwnSizes
from fairsync.guard import AskedSlots
from fairsync.loop.serving import serve
from fairsync.policies import Guaranteed, Terms
from fairsync.policies.base import Feedback
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from worlds import floors_at_the_edge, make_world

Ints = npt.NDArray[np.int64]


def divergence(p: float, q: float) -> float:
    """The divergence of two Bernoulli variables."""
    parts = ((p, q), (1 - p, 1 - q))
    return sum(a * np.log(a / b) if b > 0 else np.inf for a, b in parts if a > 0)


@given(mean=st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-9, 1)), doubt=st.floats(1e-7, 20))
@settings(max_examples=500, deadline=None)
def test_the_bounds_are_beyond_what_is_plausible(mean: float, doubt: float) -> None:
    """Of the true mean behind an observed one, and of the observed mean of a true one."""
    least = doubt * (1 - 1e-6) - 1e-12
    low, high = float(lowest_mean(mean, doubt)), float(highest_mean(mean, doubt))
    assert 0 <= low <= mean <= high <= 1 + 1e-12
    assert low <= 0 or divergence(mean, low) >= least
    assert high >= 1 - 1e-9 or divergence(mean, high) >= least
    low, high = float(lowest_outcome(mean, doubt)), float(highest_outcome(mean, doubt))
    assert 0 <= low <= mean <= high <= 1 + 1e-12
    assert low <= 0 or divergence(low, mean) >= least
    assert high >= 1 - 1e-9 or divergence(high, mean) >= least


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("so_far", [50, 500, 5000])
def test_the_forecast_is_rarely_too_high_for_requests_that_are_alike(share: float, so_far: int) -> None:
    rng = np.random.default_rng(0)
    terms = Terms(np.ones(2000, dtype=np.int64), np.full(2000, 3), k=3, horizon=10_000, batch_size=1)
    seen = rng.binomial(so_far, share, size=2000).astype(float)
    forecast = EligibleSlots(so_far, so_far, seen, seen, so_far).forecast(terms)
    for left in (20, 300, 4000):
        comes = 3 * rng.binomial(left, share, size=2000)
        assert (forecast.counted(left).groups > comes).mean() <= 0.01
    # It is not idle either: with more requests it comes near to what there is.
    if so_far == 5000:
        assert np.median(forecast.counted(5000).groups) > 0.2 * 3 * 5000 * share


@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=4), total=st.floats(0, 1), left=st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_more_requests_are_never_counted_on_for_less(shares: list[float], total: float, left: int) -> None:
    forecast = SlotForecast(np.array(shares), total, np.full(len(shares), 5), k=7)
    some, more = forecast.counted(left), forecast.counted(left + 1)
    assert (some.groups <= more.groups).all()
    assert some.total <= more.total
    assert (some.groups <= 5 * left).all()
    assert some.total <= 7 * left


def possible(supply: Ints, k: int, groups: tuple[int, ...]) -> int:
    """The most exposures that requests can give to some groups together; supply is (requests, G)."""
    return int(np.minimum(supply[:, list(groups)].sum(axis=1), k).sum())


class Adversary:
    """Chooses what each request may get, with counts and forecast in view."""

    def __init__(self, kind: str, rng: np.random.Generator, catalog: Catalog, horizon: int) -> None:
        self.kind, self.rng, self.catalog, self.horizon = kind, rng, catalog, horizon
        self.shares = rng.random(catalog.n_groups) ** 2
        self.turn = int(rng.integers(horizon))

    def allowed(self, t: int, missing: Ints, counted: Ints) -> npt.NDArray[np.bool_]:
        """Return which items may be shown; never none."""
        n_groups, group_of = self.catalog.n_groups, self.catalog.group_of
        shown = self.rng.random(n_groups) < self.shares
        if self.kind == "stops":  # what was frequent becomes rare
            shown = shown | (t < self.turn)
        elif self.kind == "starts":
            shown = shown & (t >= self.turn)
        elif self.kind == "teases":  # a group may be shown while the guard does not ask for it
            shown = missing <= counted
        elif self.kind == "crowds":  # all groups at once, or none
            shown = np.full(n_groups, self.rng.random() < self.shares[0])
        mask = shown[group_of]
        if self.kind == "items":
            mask = self.rng.random(len(group_of)) < self.shares[group_of]
        mask[0] |= not mask.any()
        return mask


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["random", "stops", "starts", "teases", "crowds", "items"]),
    batch=st.sampled_from([1, 1, 3, 16]),
    promised=st.integers(1, 4),
    e=st.sampled_from([0, 0, 2]),
    level=st.sampled_from([0.2, 0.6, 0.9]),
)
@example(seed=170014, kind="crowds", batch=3, promised=2, e=2, level=0.9)  # the last request shows more than c
@effort(examples=80, seconds_each=0.3)
def test_no_promise_misses_more_than_the_forecast_was_too_high(
    seed: int, kind: str, batch: int, promised: int, e: int, level: float
) -> None:
    """The theorem of docs/limited-requests.md, request by request, against eligibility that an adversary chooses."""
    rng = np.random.default_rng(seed)
    horizon, k = 60, int(rng.integers(1, 5))
    world = make_world(seed, groups=4, items=int(rng.integers(k + e + 4, 30)), horizon=horizon, k=k)
    catalog = world.catalog
    capacities = np.minimum(np.maximum(catalog.group_sizes - e, 0), k)
    floors = {g: int(level * horizon * min(int(capacities[g]), k / promised)) for g in range(promised)}
    retriever = FairRetriever(catalog, k=k, floors=floors, horizon=horizon, batch_size=batch, max_exclude=e)
    terms, adversary = retriever.terms, Adversary(kind, rng, catalog, horizon)
    missing = terms.floors.copy()
    supply, counted, left_out = [], [], np.zeros(4, dtype=np.int64)
    for t, user in enumerate(world.users):
        left = horizon - t - 1
        forecast = retriever._state.begin(terms, retriever.policy).next_batch(terms, retriever.policy, 1).forecast
        counts_on = left * terms.capacities if forecast is None else forecast.counted(left).groups
        mask = adversary.allowed(t, missing, counts_on)
        own = np.minimum(np.bincount(catalog.group_of[mask], minlength=4), k)
        asked = np.minimum(np.maximum(missing - counts_on, 0), own)
        found = retriever.retrieve(user[None], exclude=[np.flatnonzero(~mask)])
        rows = found.rows[0][found.rows[0] >= 0]
        assert mask[rows].all()
        assert len(set(rows.tolist())) == len(rows) == min(int(mask.sum()), k)
        given_ = np.bincount(catalog.group_of[rows], minlength=4)
        short = np.maximum(asked - given_, 0)
        assert not short.any() or asked.sum() > k  # nothing that is asked is left out but for want of slots
        left_out += short
        missing = np.maximum(missing - given_, 0)
        supply.append(own)
        counted.append(counts_on)
    after = np.cumsum(np.array(supply)[::-1], axis=0)[::-1]  # what really came, each request included
    too_high = np.max(np.array(counted) - np.vstack([after[1:], np.zeros(4, dtype=np.int64)]), axis=0)
    bound = np.maximum(np.maximum(terms.floors - after[0], too_high), 0) + left_out
    assert (missing <= bound).all()
    if promised == 1:
        assert not left_out.any()


@given(seed=st.integers(0, 10**6), e=st.integers(0, 4), batch=st.sampled_from([1, 4]), k=st.integers(1, 4))
@effort(examples=40, seconds_each=0.3)
def test_a_gloomy_forecast_breaks_no_floor_that_is_certain(seed: int, e: int, batch: int, k: int) -> None:
    """After a horizon of conditions comes one at the very edge, with exclusions as declared: every floor holds."""
    rng = np.random.default_rng(seed)
    horizon = 40
    world = make_world(seed, groups=4, items=int(rng.integers(k + e + 4, 30)), horizon=horizon, k=k)
    catalog = world.catalog
    capacities = np.minimum(np.maximum(catalog.group_sizes - e, 0), k)
    floors = floors_at_the_edge(rng, capacities, k, horizon)
    retriever = FairRetriever(catalog, k=k, floors=floors, horizon=horizon, batch_size=batch, max_exclude=e)
    few = [rng.permutation(len(catalog))[: rng.integers(e + 1, len(catalog))] for _ in world.users]
    retriever.retrieve(world.users, exclude=few)
    assert retriever.limited_requests <= horizon
    for user in world.users:
        gone = [int(row) for row in np.argsort(-(catalog.embeddings @ user))[:e]]
        retriever.retrieve(user[None], exclude=[gone])
    report = retriever.report()
    assert (report.esp, report.limited_requests, report.completed) == (1.0, 0, 1)
    retriever.retrieve(world.users[:1])  # a horizon without limited requests: the next one counts on what was declared
    assert retriever.report().outlooks is None


def rare_groups(seed: int, horizon: int, shares: list[float]) -> tuple[Catalog, list[Any], npt.NDArray[np.bool_]]:
    """A catalog with a group for each share and a large one, conditions, and which request may show which group."""
    rng = np.random.default_rng(seed)
    group_of = np.repeat(np.arange(len(shares) + 1), [20] * len(shares) + [200])
    attributes: dict[str, Any] = {"group": group_of}
    attributes |= {f"is {g}": group_of == g for g in range(len(shares))}
    catalog = Catalog(rng.normal(size=(len(group_of), 8)), attributes)
    shown = rng.random((horizon, len(shares))) < shares
    where = [{f"is {g}": False for g in np.flatnonzero(~row)} or None for row in shown]
    return catalog, where, shown


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("spare", "batch"), [(0.1, 16), (0.1, 1), (0.6, 64)])
def test_floors_that_are_possible_in_hindsight_hold_for_groups_that_few_requests_can_show(
    seed: int, spare: float, batch: int
) -> None:
    """Shown by 3 %, 10 % and 50 % of requests. With what was declared alone the guard would act far too late."""
    horizon, k = 2000, 10
    catalog, where, shown = rare_groups(seed, horizon, [0.03, 0.1, 0.5])
    supply = np.minimum(shown * 20, k)
    every = chain.from_iterable(combinations(range(3), size) for size in (1, 2, 3))
    wanted = supply.sum(axis=0)
    tightest = max(wanted[list(some)].sum() / possible(supply, k, some) for some in every)
    floors = {g: int((1 - spare) * wanted[g] / tightest) for g in range(3)}
    retriever = FairRetriever(catalog, k=k, floors=floors, horizon=horizon, batch_size=batch)
    users = np.random.default_rng(seed + 100).normal(size=(horizon, 8))
    retriever.retrieve(users, where=where)
    assert retriever.report().missing == {0: 0, 1: 0, 2: 0, 3: 0}


def test_the_report_says_early_which_promise_will_miss_and_why() -> None:
    horizon, k = 4000, 10
    catalog, where, shown = rare_groups(0, horizon, [0.03, 0.1, 0.5])
    floors = {0: 4000, 1: 1500, 2: 3000}  # of about 1,200, 4,000 and 20,000 that are possible
    retriever = FairRetriever(catalog, k=k, floors=floors, horizon=horizon)
    users = np.random.default_rng(1).normal(size=(horizon, 8))
    retriever.retrieve(users[:400], where=where[:400])
    early = retriever.report()
    assert early.outlooks is not None
    assert {g: one.outlook for g, one in early.outlooks.items()} == {0: "will miss", 1: "expected", 2: "expected"}
    assert early.outlooks[0].share == pytest.approx(shown[:400, 0].mean())
    assert early.limited_requests == sum(one is not None for one in where[:400])
    assert f"only {100 * shown[:400, 0].mean():.2g} % of requests could show it" in str(early)
    retriever.retrieve(users[400:], where=where[400:])
    late = retriever.report()
    assert late.outlooks is not None
    assert [late.satisfied[g] for g in range(3)] == [False, True, True]
    assert late.exposures[0] >= 0.95 * 10 * shown[:, 0].sum()  # nearly as many as there could be
    assert late.outlooks[0].outlook == "missed"
    assert late.outlooks[0].shortfall == late.missing[0]
    assert abs(early.outlooks[0].shortfall - late.missing[0]) < 0.3 * late.missing[0]


def test_requests_as_declared_leave_no_trace() -> None:
    world = make_world(3, items=30, horizon=40)
    plain, other = (
        FairRetriever(world.catalog, k=world.k, floors=20, horizon=40, batch_size=4, max_exclude=3) for _ in range(2)
    )
    plain.retrieve(world.users)
    other.retrieve(world.users, exclude=[[0, 1]] * 40)
    for retriever in (plain, other):
        assert retriever._state.price_state.all_slots is None
        assert retriever.report().outlooks is None
        assert retriever.report().limited_requests == 0


def test_what_was_eligible_is_saved_with_the_prices(tmp_path: Path) -> None:
    catalog, where, _ = rare_groups(5, 600, [0.05, 0.4])
    users = np.random.default_rng(2).normal(size=(600, 8))
    floors = {0: 100, 1: 900}
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    whole = FairRetriever(catalog, k=10, floors=floors, horizon=600)
    expected = whole.retrieve(users, where=where)
    with FairRetriever(catalog, k=10, floors=floors, horizon=600, ledger=url) as first:
        first.retrieve(users[:251], where=where[:251])
        first.save(tmp_path / "saved")
        halfway = first.report()
    with FairRetriever(catalog, k=10, floors=floors, horizon=600, ledger=url) as second:
        assert second.report() == halfway
        assert second.retrieve(users[251:], where=where[251:]).ids.tolist() == expected.ids[251:].tolist()
        assert second.report().outlooks == whole.report().outlooks
    moved = FairRetriever.load(tmp_path / "saved")
    assert moved.retrieve(users[251:], where=where[251:]).ids.tolist() == expected.ids[251:].tolist()


def test_a_new_horizon_starts_from_half_of_what_is_known_and_forgets_it_without_limited_requests() -> None:
    slots = EligibleSlots(100.0, 60, np.array([40.0, 100.0]), np.array([50.0, 100.0]), 80.0)
    half = slots.restarted()
    assert half is not None
    assert (half.requests, half.limited, half.shares.tolist(), half.total) == (50.0, 0, [20.0, 50.0], 40.0)
    assert half.plus(EligibleSlots.declared(30, 2)).restarted() is None


def test_slots_are_capped_by_what_a_list_can_hold() -> None:
    terms = Terms(np.array([9, 0, 9]), np.array([2, 4, 3]), k=4, horizon=9, batch_size=1)
    none = np.empty(0, dtype=np.int64)
    own = OwnSizes((np.array([1, 9, 0]), np.array([5, 0, 9])), np.array([0, 1]), none, none, none, none)
    slots = EligibleSlots.of(own, 3, terms)
    assert slots.shares.tolist() == [2.5, 2.0, 2.0]
    assert slots.able.tolist() == [3.0, 2.0, 2.0]
    assert slots.total == 1 + 1 / 4 + 1.0  # of the second group nothing is promised
    grown = slots.grown(4)
    assert (grown.shares.tolist(), grown.grown(4) is grown) == ([2.5, 2.0, 2.0, 3.0], True)


def test_what_is_asked_beyond_a_list_goes_to_the_scarcest_group_first() -> None:
    counted = CountedSlots(np.array([0, 90, 40]), 1000)
    asked = AskedSlots.of(np.array([20, 100, 42]), np.array([3, 3, 3]), counted, k=5)
    assert asked.groups.tolist() == [3, 2, 0]  # 20 against 0, 100 against 90, 42 against 40
    assert asked.total == 0
    assert asked.has(np.array([3, 2, 0]), np.array([20, 100, 42]))
    assert not asked.has(np.array([3, 1, 1]), np.array([20, 100, 42]))


def test_a_floor_that_will_be_missed_does_not_take_the_target_of_others() -> None:
    terms = Terms(np.array([900, 100]), np.array([4, 4]), k=4, horizon=200, batch_size=1)
    state, exposures = Guaranteed().start(terms), np.zeros(2, dtype=np.int64)
    declared = Guaranteed().step(state, terms, Feedback(1, exposures, exposures, 100))
    assert declared.target.tolist() == pytest.approx([3.996 * 4 / 5, 3.996 / 5])
    limited = Guaranteed().step(state, terms, Feedback(1, exposures, exposures, 100, slots=np.array([0.5, 4.0])))
    assert limited.target.tolist() == [0.5, 1.0]


def test_a_coordinator_forecasts_as_a_retriever_does() -> None:
    catalog, where, _ = rare_groups(7, 400, [0.05, 0.4])
    users = np.random.default_rng(3).normal(size=(400, 8))
    terms: dict[str, Any] = {"k": 10, "floors": {0: 80, 1: 600}, "horizon": 400, "batch_size": 8}
    retriever, coordinator = FairRetriever(catalog, **terms), Coordinator(catalog, **terms)
    expected, start = retriever.retrieve(users, where=where), 0
    while start < 400:
        lease = coordinator.lease(5)
        here = slice(start, start + lease.batch.requests)
        eligible, _ = make_eligibility(None, where[here], catalog, lease.batch.requests)
        served = serve(lease.batch, catalog, retriever.index, users[here][:, None], eligible)
        assert [set(rows) for rows in served.hits.rows.tolist()] == [set(rows) for rows in expected.rows[here].tolist()]
        coordinator.settle(lease.number, Settlement(served.entry, served.sample, slots=served.slots))
        start = here.stop
    assert coordinator.report().outlooks == retriever.report().outlooks
    assert coordinator.report().limited_requests == retriever.limited_requests > 0


def test_a_forecast_follows_new_groups() -> None:
    catalog, where, _ = rare_groups(8, 300, [0.05, 0.4])
    retriever = FairRetriever(catalog, k=10, floors={0: 50}, horizon=300)
    users = np.random.default_rng(4).normal(size=(300, 8))
    retriever.retrieve(users[:100], where=where[:100])
    rng = np.random.default_rng(5)
    new = {"group": [9] * 12, "is 0": [False] * 12, "is 1": [False] * 12}
    retriever.upsert(rng.normal(size=(12, 8)), new, list(range(1000, 1012)), floors={0: 50, 9: 100})
    retriever.retrieve(users[100:], where=where[100:])
    report = retriever.report()
    assert report.missing == {0: 0, 1: 0, 2: 0, 9: 0}
    assert report.outlooks is not None
    assert set(report.outlooks) == {0, 9}


def side_by_side(
    catalog: Catalog, where: list[Any], floors: dict[Any, int], seed: int
) -> tuple[Coordinator, list[int]]:
    """Serve requests in leases of which up to four are open at once; return also the requests that had to wait."""
    rng, n = np.random.default_rng(seed), len(where)
    coordinator, index = Coordinator(catalog, k=10, floors=floors, horizon=n, batch_size=8), ExactIndex(catalog)
    users, waiting, start, waits = rng.normal(size=(n, 1, 8)), list[Any](), 0, list[int]()
    while start < n or waiting:
        lease = coordinator.try_lease(int(rng.integers(1, 9))) if start < n and len(waiting) < 4 else None
        if lease is not None:
            here = slice(start, start + lease.batch.requests)
            eligible, _ = make_eligibility(None, where[here], catalog, lease.batch.requests)
            waiting.append((lease.number, serve(lease.batch, catalog, index, users[here], eligible)))
            start = here.stop
        elif start < n and len(waiting) < 4:
            waits.append(start)
        if waiting and (lease is None or rng.random() < 0.3):
            number, served = waiting.pop(int(rng.integers(len(waiting))))
            coordinator.settle(number, Settlement(served.entry, served.sample, slots=served.slots))
    return coordinator, waits


@pytest.mark.parametrize("seed", range(4))
def test_leases_side_by_side_wait_where_the_forecast_does_not_suffice(seed: int) -> None:
    shares = [0.05, 0.3]
    catalog, where, able = rare_groups(seed, 500, shares)
    floors = {g: int(0.9 * 5 * able[:, g].sum()) for g in range(2)}
    coordinator, waits = side_by_side(catalog, where, floors, seed)
    assert coordinator.report().missing[0] == coordinator.report().missing[1] == 0
    assert len(waits) > 10


def test_a_promise_that_is_lost_in_any_case_makes_no_lease_wait() -> None:
    catalog, where, _ = rare_groups(3, 300, [0.0, 0.5])
    coordinator, waits = side_by_side(catalog, where, {0: 900}, 3)
    assert coordinator.report().missing[0] == 900
    # It is known after some requests; in the end the rule for requests without conditions makes leases wait.
    assert not [at for at in waits if 60 < at < 180]
