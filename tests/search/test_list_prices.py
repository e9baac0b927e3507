"""Items that are scored one by one: chosen by bonus and length, and kept while prices move in small steps."""

from __future__ import annotations

import numpy as np
import pytest

from fairsync.search.inverted_lists import InvertedLists
from fairsync.search.list_prices import ListPrices

TAIL, PER_LENGTH = 1.0, 0.5
RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(6_000, 8)).astype(np.float32)
GROUPS = np.arange(6_000) // 2
LISTS = InvertedLists.of(ITEMS, GROUPS)
BONUS = RNG.exponential(1.0, 3_000).astype(np.float32)


def listed_value(bonus: np.ndarray) -> np.ndarray:
    """Return what items are chosen by, -inf for those in no list."""
    value = bonus[GROUPS] + PER_LENGTH * np.linalg.norm(ITEMS, axis=1)
    return np.where(LISTS.list_of >= 0, value, -np.inf)


def test_the_longest_items_and_those_with_much_bonus_and_length_are_apart() -> None:
    found = ListPrices(LISTS, ITEMS, 3_000).of(BONUS, TAIL, PER_LENGTH)
    longest, others = found.rows[: len(LISTS.longest)], found.rows[len(LISTS.longest) :]
    assert longest.tolist() == LISTS.longest.tolist()
    assert len(longest)
    value = listed_value(BONUS)
    assert set(others.tolist()) == set(np.argsort(-value)[: len(others)].tolist())
    assert 0.005 * len(ITEMS) < len(others) < 0.02 * len(ITEMS)
    assert (found.items == ITEMS[found.rows]).all()
    assert found.row_bonus[: len(found.rows)].tolist() == BONUS[GROUPS[found.rows]].tolist()


def test_they_are_kept_in_small_steps_with_their_new_bonuses() -> None:
    prices = ListPrices(LISTS, ITEMS, 3_000)
    before = prices.of(BONUS, TAIL, PER_LENGTH)
    moved = (BONUS + RNG.uniform(-0.4, 0.4, 3_000)).astype(np.float32)
    found = prices.of(moved, TAIL, PER_LENGTH)
    assert found.rows is before.rows
    assert found.row_bonus[: len(found.rows)].tolist() == moved[GROUPS[found.rows]].tolist()
    assert (found.bonus != before.bonus).all(), "lists have their new bonuses, too"
    again = prices.of(moved + np.float32(0.04), TAIL, PER_LENGTH)
    assert again.bonus is found.bonus, "lists need not know of a small change"
    assert again.row_bonus[0] == np.float32(found.row_bonus[0] + np.float32(0.04))


def test_small_steps_add_up() -> None:
    prices, fresh = ListPrices(LISTS, ITEMS, 3_000), ListPrices(LISTS, ITEMS, 3_000)
    bonus, first, changes = BONUS.copy(), prices.of(BONUS, TAIL, PER_LENGTH).rows, 0
    for _ in range(40):
        bonus = bonus + np.linspace(0, 0.1, 3_000, dtype=np.float32)
        found = prices.of(bonus, TAIL, PER_LENGTH).rows
        changes += found is not first
        first = found
    assert 5 <= changes <= 10, "4 tails in steps of at most half a tail"
    wanted = fresh.of(bonus, TAIL, PER_LENGTH).rows
    assert len(np.intersect1d(found, wanted)) > 0.8 * len(wanted)


@pytest.mark.parametrize("change", ["one bonus", "masked", "no longer masked", "unit"])
def test_they_are_chosen_again_after_a_large_change(change: str) -> None:
    prices, first, second = ListPrices(LISTS, ITEMS, 3_000), BONUS.copy(), BONUS.copy()
    row = int(np.flatnonzero(LISTS.list_of >= 0)[0])
    if change == "one bonus":
        second[GROUPS[row]] += 9.0
    elif change == "masked":
        second[7] = -np.inf
    elif change == "no longer masked":
        first[7] = -np.inf
    tail = 2.0 if change == "unit" else TAIL
    before = prices.of(first, TAIL, PER_LENGTH)
    found = prices.of(second, tail, PER_LENGTH)
    assert found.rows is not before.rows
    fresh = ListPrices(LISTS, ITEMS, 3_000).of(second, tail, PER_LENGTH)
    assert found.rows.tolist() == fresh.rows.tolist()
    assert found.bonus.tolist() == fresh.bonus.tolist()
    assert (found.depth, found.open_share) == (fresh.depth, fresh.open_share)
    if change == "one bonus":
        assert row in found.rows
