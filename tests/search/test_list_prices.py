"""Items that are scored one by one: chosen by bonus and length, and kept while prices move in small steps."""

from __future__ import annotations

import numpy as np
import pytest

from fairsync.catalog.atoms import Membership
from fairsync.search.inverted_lists import InvertedLists
from fairsync.search.list_prices import ListPrices
from fairsync.search.rounding import GroupBonus

# In a unit of 1,024: a bonus is cut off at four times that, which is far above these.
UNIT = 10
TAIL, PER_LENGTH = 2.0**-UNIT, 0.5 * 2.0**-UNIT
RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(6_000, 8)).astype(np.float32)
GROUPS = np.arange(6_000) // 2
LISTS = InvertedLists.of(ITEMS, GROUPS)
SUBSIDIES = RNG.exponential(1.0, 3_000)


def bonus_of(subsidies: np.ndarray) -> GroupBonus:
    """Return the bonuses of these subsidies; -inf masks a group."""
    return GroupBonus.of(-subsidies, 0.0, UNIT)


def listed_value(subsidies: np.ndarray) -> np.ndarray:
    """Return what items are chosen by, -inf for those in no list."""
    value = subsidies[GROUPS] + 0.5 * np.linalg.norm(ITEMS, axis=1)
    return np.where(LISTS.list_of >= 0, value, -np.inf)


def test_the_longest_items_and_those_with_much_bonus_and_length_are_apart() -> None:
    found = ListPrices(LISTS, ITEMS, 3_000).of(bonus_of(SUBSIDIES), TAIL, PER_LENGTH)
    longest, others = found.rows[: len(LISTS.longest)], found.rows[len(LISTS.longest) :]
    assert longest.tolist() == LISTS.longest.tolist()
    assert len(longest)
    value = listed_value(SUBSIDIES)
    assert set(others.tolist()) == set(np.argsort(-value)[: len(others)].tolist())
    assert 0.005 * len(ITEMS) < len(others) < 0.02 * len(ITEMS)
    assert (found.items == ITEMS[found.rows]).all()
    assert found.row_bonus[: len(found.rows)].tolist() == bonus_of(SUBSIDIES).take(GROUPS[found.rows]).tolist()


def test_they_are_kept_in_small_steps_with_their_new_bonuses() -> None:
    prices = ListPrices(LISTS, ITEMS, 3_000)
    before = prices.of(bonus_of(SUBSIDIES), TAIL, PER_LENGTH)
    moved = SUBSIDIES + RNG.uniform(-0.4, 0.4, 3_000)
    found = prices.of(bonus_of(moved), TAIL, PER_LENGTH)
    assert found.rows is before.rows
    assert found.row_bonus[: len(found.rows)].tolist() == bonus_of(moved).take(GROUPS[found.rows]).tolist()
    assert (found.bonus != before.bonus).all(), "lists have their new bonuses, too"
    again = prices.of(bonus_of(moved + 0.04), TAIL, PER_LENGTH)
    assert again.bonus is found.bonus, "lists need not know of a small change"
    assert again.row_bonus[0] == bonus_of(moved + 0.04).take(GROUPS[found.rows[:1]])[0] > found.row_bonus[0]


def test_small_steps_add_up() -> None:
    prices, fresh = ListPrices(LISTS, ITEMS, 3_000), ListPrices(LISTS, ITEMS, 3_000)
    subsidies, first, changes = SUBSIDIES.copy(), prices.of(bonus_of(SUBSIDIES), TAIL, PER_LENGTH).rows, 0
    for _ in range(40):
        subsidies = subsidies + np.linspace(0, 0.1, 3_000)
        found = prices.of(bonus_of(subsidies), TAIL, PER_LENGTH).rows
        changes += found is not first
        first = found
    assert 5 <= changes <= 10, "4 tails in steps of at most half a tail"
    wanted = fresh.of(bonus_of(subsidies), TAIL, PER_LENGTH).rows
    assert len(np.intersect1d(found, wanted)) > 0.8 * len(wanted)


@pytest.mark.parametrize("change", ["one bonus", "masked", "no longer masked", "unit"])
def test_they_are_chosen_again_after_a_large_change(change: str) -> None:
    prices, first, second = ListPrices(LISTS, ITEMS, 3_000), SUBSIDIES.copy(), SUBSIDIES.copy()
    row = int(np.flatnonzero(LISTS.list_of >= 0)[0])
    if change == "one bonus":
        second[GROUPS[row]] += 9.0
    elif change == "masked":
        second[7] = -np.inf
    elif change == "no longer masked":
        first[7] = -np.inf
    tail = 2 * TAIL if change == "unit" else TAIL
    before = prices.of(bonus_of(first), TAIL, PER_LENGTH)
    found = prices.of(bonus_of(second), tail, PER_LENGTH)
    assert found.rows is not before.rows
    fresh = ListPrices(LISTS, ITEMS, 3_000).of(bonus_of(second), tail, PER_LENGTH)
    assert found.rows.tolist() == fresh.rows.tolist()
    assert found.bonus.tolist() == fresh.bonus.tolist()
    assert (found.depth, found.open_share) == (fresh.depth, fresh.open_share)
    if change == "one bonus":
        assert row in found.rows


def test_of_prices_of_atoms_the_change_is_known_from_promises() -> None:
    promises = [(row % 7, 7 + row % 40) for row in range(3_000)]
    membership, subsidies = Membership.of(promises, 47), RNG.exponential(1.0, 47)
    prices = ListPrices(LISTS, ITEMS, 3_000)
    before = prices.of(GroupBonus.of(membership.atom_prices(-subsidies), 0.0, UNIT), TAIL, PER_LENGTH)
    for step, is_kept in ((0.01, True), (0.2, True), (9.0, False)):
        moved = subsidies + step * (np.arange(47) == 40)
        found = prices.of(GroupBonus.of(membership.atom_prices(-moved), 0.0, UNIT), TAIL, PER_LENGTH)
        assert (found.rows is before.rows) is is_kept
        assert (found.bonus is before.bonus) is (step < 0.05)


@pytest.mark.parametrize("extreme", [1e60, -1e60, np.inf])
def test_extreme_prices(extreme: float) -> None:
    price = np.where(np.arange(3_000) % 100 == 1, extreme, -SUBSIDIES)
    found = ListPrices(LISTS, ITEMS, 3_000).of(GroupBonus.of(price, 0.0, UNIT), TAIL, PER_LENGTH)
    apart, extreme_rows = found.rows[len(LISTS.longest) :], np.flatnonzero((GROUPS % 100 == 1) & (LISTS.list_of >= 0))
    if extreme < 0:
        assert set(apart) <= set(extreme_rows) or set(apart) >= set(extreme_rows)
    else:
        assert len(apart)
        assert not set(apart) & set(extreme_rows)
