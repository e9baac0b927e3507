"""The guard for overlapping promises: its lists are the best ones that the rules allow, and they depend on little."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.guard import choose
from fairsync.guard.forced_list import compose
from fairsync.guard.live_certificate import LiveCertificate
from fairsync.promises.shown import Shown
from fairsync.guard.open_list import OpenList
from fairsync.policies.base import Counts, Floats, Terms
from fairsync.promises.certificate import is_certificate
from fairsync.search import Hits, make_index
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from overlap_driver import Driver
from overlap_worlds import OverlapWorld, make_overlap_world

seeds = st.integers(0, 2**32 - 1)


def live(world: OverlapWorld) -> LiveCertificate:
    return LiveCertificate(world.terms, world.certificate, world.terms.floors, world.terms.caps)


@given(seed=seeds)
@settings(max_examples=200, deadline=None)
def test_a_subsidy_ends_with_its_floor_as_for_disjoint_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_items, n_groups, k = 12, 3, 4
    world = make_overlap_world(int(rng.integers(50)))
    catalog = world.catalog.regrouped(rng.integers(n_groups, size=len(world.catalog)).astype(np.int32), n_groups)
    n_items, k = len(catalog), min(k, len(catalog))
    missing = rng.integers(0, 4, size=n_groups)
    prices = rng.integers(-4, 2, size=n_groups) / 8
    terms = Terms(missing, np.full(n_groups, k), k, horizon=9, batch_size=1)
    relevance = rng.integers(0, 8, size=n_items) / 8  # many ties
    index = make_index("exact", catalog)
    found = index.search(relevance[None, None], prices, n_items)
    expected = choose(
        catalog.group_of[found.rows[0]], found.relevance[0], found.rows[0], prices, missing, k, beyond=-np.inf
    )
    assert expected is not None
    for width in range(k, n_items + 1):
        chosen = OpenList(catalog, LiveCertificate(terms, missing, missing, None), prices, k)
        chosen.fill(
            found.rows[0, :width], found.relevance[0, :width], prices,
            lambda p, n: index.search(relevance[None, None], p, n),
        )  # fmt: skip
        assert list(chosen.relevance) == found.rows[0, expected].tolist()


@pytest.mark.parametrize("seed", range(60))
def test_composed_lists_are_the_best_that_keep_the_certificate(seed: int) -> None:
    """Against every list there is, with list limits and without."""
    world = make_overlap_world(seed, limits=seed % 2 == 1)
    n_items, terms = len(world.catalog), replace(world.terms, floors=np.zeros_like(world.terms.floors))
    if n_items > 12 or terms.k > 5:
        return
    rng = np.random.default_rng(seed)
    certificate, left = live(world), terms.horizon - 1
    prices = -rng.random(terms.n_atoms)
    relevance = rng.normal(size=n_items)
    index = make_index("exact", world.catalog)

    def search(p: np.ndarray, n: int) -> Hits:
        return index.search(relevance[None, None], p, n)

    chosen = OpenList(world.catalog, certificate, np.zeros(len(terms.floors)), terms.k)
    compose(search, chosen, certificate, prices, left)
    for rows in search(prices, n_items).rows.T:
        chosen.add_admitted(rows, relevance[rows])
    score = relevance - prices[world.catalog.group_of]

    def allowed(items: tuple[int, ...]) -> bool:
        rows = np.array(items)
        if terms.list_limits is not None and (world.recount(rows) > terms.list_limits).any():
            return False
        return live(world).is_safe(Shown.of(rows, world.catalog.group_of), left)

    assert certificate.is_safe(chosen.shown(), left)
    assert terms.list_limits is None or (world.recount(np.array(list(chosen.relevance))) <= terms.list_limits).all()
    best = max(score[list(items)].sum() for items in combinations(range(n_items), terms.k) if allowed(items))
    assert score[list(chosen.relevance)].sum() >= best - 1e-9  # better only if others stood in for planned items


@pytest.mark.parametrize("seed", range(60))
def test_list_limits_give_the_best_list_that_they_allow(seed: int) -> None:
    """Without any floor."""
    world = make_overlap_world(seed, limits=True)
    none = np.zeros_like(world.terms.floors)
    world = replace(world, terms=replace(world.terms, floors=none), certificate=np.zeros_like(world.certificate))
    terms, n_items = world.terms, len(world.catalog)
    if n_items > 14 or terms.k > 5:
        return
    rng = np.random.default_rng(seed)
    users = rng.normal(size=(terms.horizon, n_items)) + 3 * rng.normal(size=n_items)
    driver = Driver(world, make_index("exact", world.catalog), rng)
    found = driver.serve(users, np.zeros(len(none)), terms.k)
    assert driver.forced == 0
    assert terms.list_limits is not None
    for user, rows in zip(users[:3], found.rows[:3], strict=True):
        best = max(
            user[list(items)].sum()
            for items in combinations(range(n_items), terms.k)
            if (world.recount(np.array(items)) <= terms.list_limits).all()
        )
        assert user[rows].sum() == pytest.approx(best)


@pytest.mark.parametrize("seed", range(24))
def test_requests_of_one_call_are_answered_as_if_they_came_one_by_one(seed: int) -> None:
    world = make_overlap_world(seed, caps=seed % 2 == 1, limits=seed % 3 == 1)
    index = make_index("exact", world.catalog)
    one, other = (Driver(world, index, np.random.default_rng(seed)) for _ in range(2))
    users, prices = one.users(world.terms.horizon), one.prices()
    together = one.serve(users, prices, world.terms.k)
    singles = [other.serve(user[None], prices, world.terms.k).rows[0].tolist() for user in users]
    # Prices of promises whose floors are met change within a batch of single requests only by the first rule.
    assert together.rows.tolist() == singles
    assert one.certificate.tolist() == other.certificate.tolist()
    assert one.forced == other.forced


@pytest.mark.parametrize("seed", range(60))
def test_requests_beyond_what_was_declared_are_answered_all_the_same(seed: int) -> None:
    """What could still be promised when the last of them has come is kept; caps give way to nothing but full lists."""
    world = make_overlap_world(seed, caps=seed % 2 == 1, limits=seed % 3 == 1)
    terms, n_items = world.terms, len(world.catalog)
    rng = np.random.default_rng(seed)
    driver = Driver(world, make_index("exact", world.catalog), rng)
    free_from = int(rng.integers(terms.horizon + 1))
    certain = False
    while driver.left:
        number = terms.horizon - driver.left
        gone = rng.permutation(n_items)[: rng.integers(n_items + 1) if number < free_from else 0]
        if number == free_from:
            certain = is_certificate(terms, driver.certificate, driver.missing, driver.room, driver.left)
        eligible = Eligibility.of(n_items, [None], [gone])
        room = driver.room
        found = driver.serve(driver.users(1), driver.prices(), terms.k + 2, eligible)
        rows = found.rows[0][found.rows[0] >= 0]
        assert len(set(rows.tolist())) == len(rows) == min(terms.k, n_items - len(gone))
        assert not set(rows.tolist()) & set(gone.tolist())
        if terms.caps is not None and room is not None and terms.list_limits is None:
            free = world.members[np.flatnonzero(terms.caps < 2**61)].sum(axis=0) == 0
            free[np.concatenate([rows, gone])] = False
            # A cap is exceeded only if no other eligible item was left.
            assert not free.any() or (world.recount(rows) <= np.maximum(room, 0))[world.recount(rows) > 0].all()
    if certain:
        assert (driver.exposures >= terms.floors).all()


class Patchy:
    """Exact search of which some items are out of reach."""

    applies_prices = "bias"

    def __init__(self, world: OverlapWorld) -> None:
        self.catalog, self.index = world.catalog, make_index("exact", world.catalog)
        self.alive = np.ones(len(world.catalog), dtype=bool)

    @property
    def reached(self) -> Counts:
        return np.bincount(self.catalog.group_of[self.alive], minlength=self.catalog.n_groups)

    def search(self, users: npt.NDArray[np.floating], prices: Floats | None, k: int) -> Hits:
        gone = [np.flatnonzero(~self.alive)] * len(users)
        hits = search_eligible(self.index, users, prices, k, Eligibility.of(len(self.alive), [None] * len(users), gone))
        return Hits(hits.rows, hits.relevance, None if self.alive.all() else self.reached)


@pytest.mark.parametrize("seed", range(60))
def test_promises_hold_through_outages_as_far_as_the_plan_does(seed: int) -> None:
    world = make_overlap_world(seed, caps=seed % 2 == 1, limits=seed % 3 == 1, covered=seed % 5 == 1)
    rng, declared, n_items = np.random.default_rng(seed), world.terms, len(world.catalog)
    index = Patchy(world)
    driver = Driver(world, index, rng)
    certain = True
    while driver.left:
        changes = rng.random() < 0.3
        if changes:
            down = rng.random() < 0.5
            index.alive = rng.random(n_items) < rng.random() if down else np.ones(n_items, dtype=bool)
            index.alive[rng.permutation(n_items)[: declared.k]] = True
        there = replace(declared, capacities=np.minimum(declared.capacities, index.reached))
        if changes:
            certain = is_certificate(there, driver.certificate, driver.missing, driver.room, driver.left)
        driver.world = replace(world, terms=there)
        n = min(driver.left, int(rng.integers(1, 4)))
        found = driver.serve(driver.users(n), driver.prices(), declared.k)
        assert all(len(set(rows)) == declared.k for rows in found.rows.tolist())
        assert index.alive[found.rows].all()
    if certain:
        assert (driver.exposures >= declared.floors).all()
